#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "cli/session/session_grant.h"
#include "cli/split_unit.h"
#include "client/client.h"
#include "client/sessions.h"
#include "core/request.h"

/* A lone argument that begins as a number does is a size: no session is named. Beside an option
 * that gives one, only what is a size in full: a name may begin so, too. */
static bool is_size(const struct cli *cli, const char *text)
{
	struct error ignored;
	uint64_t bytes;

	if (cli->value[OPT_GPU] || cli->value[OPT_VRAM] || cli->value[OPT_GPU_MEMORY])
		return units_parse_size(text, "SIZE", &bytes, &ignored) == 0;
	return strspn(text, "0123456789.") > 0;
}

static void arguments_sort(const struct cli *cli, const char **ret_id, const char **ret_size)
{
	const char *first = cli->argument_count > 0 ? cli->arguments[0] : NULL;
	bool lone = cli->argument_count == 1 && is_size(cli, first);

	*ret_id = lone ? NULL : first;
	*ret_size = lone ? first : cli->argument_count > 1 ? cli->arguments[1] : NULL;
}

/* None of the sizes is given, or more than one. */
static int count_error(const char *id, const char *size, const char *vram, const char *memory,
		       const char *fraction, struct error *err)
{
	error_set(err, EXIT_CODE_USAGE, "session resize: %s",
		  fraction && (size || vram || memory)
			  ? "an amount of memory and --gpu are both given"
		  : size && vram ? "SIZE and --vram are both given"
		  : size         ? "SIZE and --gpu-memory are both given"
		  : vram         ? "--vram and --gpu-memory are both given"
				 : "no size given");
	error_hint(err, "for example: carve session resize %.32s%s6GiB (or --gpu 0.5)",
		   id ? id : "", id && *id ? " " : "");
	return -EXIT_CODE_USAGE;
}

/* The body for the daemon. */
static int size_read(const struct cli *cli, const char *id, const char *size, json_t **ret,
		     struct error *err)
{
	const char *vram = cli->value[OPT_VRAM], *memory = cli->value[OPT_GPU_MEMORY];
	const char *fraction = cli->value[OPT_GPU];
	struct place_request place = REQUEST_NONE;

	if (!!size + !!vram + !!memory + !!fraction != 1)
		return count_error(id, size, vram, memory, fraction, err);
	int rc = size     ? units_parse_size(size, "SIZE", &place.bytes, err)
		 : vram   ? request_size_put(REQUEST_VRAM, vram, &place, err)
		 : memory ? request_size_put(REQUEST_GPU_MEMORY, memory, &place, err)
			  : request_size_put(REQUEST_GPU, fraction, &place, err);
	char meant[SPLIT_UNIT_SIZE];

	if (rc < 0 && id && size && split_unit_size(id, size, meant))
		error_hint(err, "did you mean %s?", meant);
	if (rc < 0)
		return rc;
	if (place.kind == PLACE_WHOLE) {
		error_set(err, EXIT_CODE_USAGE,
			  "--gpu: '%.32s' is whole GPUs; a session is resized to a part of one",
			  fraction);
		error_hint(err, "for example: --gpu 0.5 or --vram 6GiB");
		return -EXIT_CODE_USAGE;
	}
	*ret = !fraction ? json_pack("{s:I}", "vram_bytes", (json_int_t)place.bytes)
			 : json_pack("{s:s}", "gpu", fraction);
	return 0;
}

/* A bare number below 1 is GiB. A user with a fraction of a GPU may mean a fraction. */
static int size_check(const struct client *client, const char *path, const char *size,
		      struct error *err)
{
	cleanup_json json_t *session = NULL;

	if (!size || size[strspn(size, "0123456789.")] || strtod(size, NULL) >= 1)
		return 0;
	int rc = client_call(client, "GET", path, NULL, NULL, &session, err);
	if (rc < 0 || json_number_value(json_object_get(session, "compute_request")) <= 0)
		return rc;
	error_set(err, EXIT_CODE_USAGE,
		  "SIZE: '%.32s' would be GiB, and this session has a share of a GPU", size);
	error_hint(err, "say --gpu %.32s, or %.32sGiB", size, size);
	return -EXIT_CODE_USAGE;
}

int cli_session_resize(struct cli *cli, struct error *err)
{
	struct client client;
	cleanup_json json_t *session = NULL, *body = NULL;
	char path[SESSION_PATH_SIZE];
	const char *id, *size;

	arguments_sort(cli, &id, &size);
	int rc = size_read(cli, id, size, &body, err);

	if (rc < 0 || (rc = client_open(&client, cli->value[OPT_HOST], err)) < 0 ||
	    (rc = session_locate(&client, session_meant(&client, id), path, err)) < 0 ||
	    (rc = size_check(&client, path, size, err)) < 0)
		return rc;
	if ((rc = client_call(&client, "PATCH", path, body, NULL, &session, err)) < 0)
		return rc;
	if (cli->value[OPT_JSON])
		return output_json(session, err);
	session_grant_print(cli, stdout, "", session);
	return 0;
}
