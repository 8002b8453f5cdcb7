/* include/carve/carve.h: the command's client for other programs. */
#include <carve/carve.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/units.h"
#include "cli/client.h"
#include "cli/sessions.h"

struct carve {
	struct client client;
	struct error error;
	bool connected;
};

_Static_assert(CARVE_E_FAILED == EXIT_CODE_FAILED && CARVE_E_USAGE == EXIT_CODE_USAGE &&
		       CARVE_E_NO_ROOM == EXIT_CODE_NO_ROOM &&
		       CARVE_E_UNREACHABLE == EXIT_CODE_UNREACHABLE &&
		       CARVE_E_NOT_PERMITTED == EXIT_CODE_NOT_PERMITTED,
	       "the public codes are the exit codes");

int carve_connect(const char *host, carve_t **ret)
{
	carve_t *carve = calloc(1, sizeof(*carve));

	*ret = carve;
	if (!carve)
		return CARVE_E_FAILED;
	carve->connected = client_open(&carve->client, host, &carve->error) == 0;
	return carve->error.code;
}

void carve_close(carve_t *carve)
{
	free(carve);
}

const char *carve_error_message(const carve_t *carve)
{
	return carve->error.message;
}

const char *carve_error_hint(const carve_t *carve)
{
	return carve->error.hint;
}

/* Starts a call: forgets the last error. False where the connection never came to be. */
static bool call_begin(carve_t *carve)
{
	carve->error = (struct error){0};
	if (!carve->connected)
		error_set(&carve->error, EXIT_CODE_UNREACHABLE, "not connected");
	return carve->connected;
}

/* The text of a successful answer, which is freed. */
static int answer_text(carve_t *carve, json_t *answer, char **ret_json)
{
	char *text = json_dumps(answer, JSON_COMPACT | JSON_ENCODE_ANY);

	json_decref(answer);
	if (!text)
		return -error_set(&carve->error, EXIT_CODE_FAILED, "out of memory");
	*ret_json = text;
	return 0;
}

static int get_text(carve_t *carve, const char *path, char **ret_json)
{
	json_t *answer;

	if (!call_begin(carve) ||
	    client_call(&carve->client, "GET", path, NULL, NULL, &answer, &carve->error) < 0)
		return carve->error.code;
	return answer_text(carve, answer, ret_json);
}

int carve_gpu_list_json(carve_t *carve, char **ret_json)
{
	return get_text(carve, "/v1/gpus", ret_json);
}

int carve_session_list_json(carve_t *carve, char **ret_json)
{
	return get_text(carve, "/v1/sessions", ret_json);
}

int carve_session_request(carve_t *carve, const char *vram, unsigned wait_seconds, char **ret_json)
{
	struct client_patience patience = {.wait_ns = wait_seconds * 1000000000ull};
	uint64_t bytes;

	if (!call_begin(carve) || units_parse_vram(vram, &bytes, &carve->error) < 0)
		return carve->error.code;
	cleanup_json json_t *body = json_pack("{s:I,s:I}", "vram_bytes", (json_int_t)bytes,
					      "wait_for", (json_int_t)wait_seconds);
	json_t *session;

	if (client_session_request(&carve->client, body, &patience, &session, &carve->error) < 0)
		return carve->error.code;
	return answer_text(carve, session, ret_json);
}

int carve_session_release(carve_t *carve, const char *id)
{
	char path[SESSION_PATH_SIZE];

	if (!call_begin(carve) || session_path(id, path, &carve->error) < 0)
		return carve->error.code;
	client_call(&carve->client, "DELETE", path, NULL, NULL, NULL, &carve->error);
	return carve->error.code;
}
