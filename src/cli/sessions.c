#include "cli/sessions.h"

#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/units.h"
#include "cli/client.h"
#include "cli/request.h"
#include "cli/slice_env.h"
#include "proto/attach.h"

const char *session_text(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

const char *session_text_or_dash(const json_t *object, const char *key)
{
	const char *text = session_text(object, key);

	return *text ? text : "-";
}

uint64_t session_number(const json_t *object, const char *key)
{
	json_int_t value = json_integer_value(json_object_get(object, key));

	return value > 0 ? (uint64_t)value : 0;
}

uint64_t session_gpus_sum(const json_t *session, const char *key)
{
	uint64_t sum = 0;
	size_t i;
	json_t *gpu;

	json_array_foreach(json_object_get(session, "gpus"), i, gpu) sum +=
		session_number(gpu, key);
	return sum;
}

/* Several instances of one GPU name it once. */
static json_t *indexes_once(const json_t *gpus)
{
	json_t *once = json_array();

	for (size_t i = 0; i < json_array_size(gpus); i++) {
		json_t *gpu = json_array_get(gpus, i);

		if (!i || session_number(gpu, "index") !=
				  session_number(json_array_get(gpus, i - 1), "index"))
			json_array_append(once, gpu);
	}
	return once;
}

void session_indexes_text(const json_t *list, char *buf, size_t size)
{
	cleanup_json json_t *gpus = indexes_once(list);
	size_t count = json_array_size(gpus), used = 0;

	buf[0] = '\0';
	for (size_t i = 0, run; i < count && used < size; i += run) {
		uint64_t first = session_number(json_array_get(gpus, i), "index");

		for (run = 1; i + run < count; run++)
			if (session_number(json_array_get(gpus, i + run), "index") != first + run)
				break;
		run = run < 3 ? 1 : run;
		used += (size_t)snprintf(buf + used, size - used, "%s%" PRIu64, i ? "," : "",
					 first);
		if (run > 1 && used < size)
			used += (size_t)snprintf(buf + used, size - used, "-%" PRIu64,
						 first + run - 1);
	}
}

const char *session_gpus_text(const json_t *session, char buf[static SESSION_GPUS_SIZE])
{
	const json_t *gpus = json_object_get(session, "gpus");
	size_t count = json_array_size(gpus);

	if (!count)
		return "no GPU";
	int used = snprintf(buf, SESSION_GPUS_SIZE, "GPUs ");
	session_indexes_text(gpus, buf + used, SESSION_GPUS_SIZE - (size_t)used);
	if (!strpbrk(buf + used, ",-"))
		memmove(buf + used - 2, buf + used - 1, strlen(buf + used) + 2);
	return buf;
}

bool session_owner_is_me(const char *owner)
{
	struct passwd entry, *found = NULL;
	char text[4096], number[16];

	snprintf(number, sizeof(number), "%u", (unsigned)getuid());
	if (!strcmp(owner, number))
		return true;
	return getpwuid_r(getuid(), &entry, text, sizeof(text), &found) == 0 && found &&
	       !strcmp(found->pw_name, owner);
}

int session_find_active(const struct client *client, json_t **ret, struct error *err)
{
	cleanup_json json_t *sessions = NULL;
	size_t i;
	json_t *session;
	int rc = client_call(client, "GET", "/v1/sessions", NULL, NULL, &sessions, err);

	if (rc < 0)
		return rc;
	*ret = NULL;
	json_array_foreach(sessions, i, session)
	{
		if (!*ret && !strcmp(session_text(session, "state"), "active") &&
		    !json_is_true(json_object_get(session, "ephemeral")) &&
		    session_owner_is_me(session_text(session, "owner")))
			*ret = json_incref(session);
	}
	return 0;
}

int session_path(const char *id, char buf[static SESSION_PATH_SIZE], struct error *err)
{
	static const char allowed[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

	/* What can stand in an ID or a name can stand in a path; anything else is neither. */
	if (*id && !id[strspn(id, allowed)] && strcmp(id, ".") != 0 && strcmp(id, "..") != 0 &&
	    snprintf(buf, SESSION_PATH_SIZE, "/v1/sessions/%s", id) < SESSION_PATH_SIZE)
		return 0;
	error_set(err, EXIT_CODE_FAILED, "there is no session '%.64s'", id);
	error_hint(err, "`carve session list` shows them");
	return -EXIT_CODE_FAILED;
}

int session_locate(const struct client *client, const char *id, char buf[static SESSION_PATH_SIZE],
		   struct error *err)
{
	cleanup_json json_t *active = NULL;

	if (id)
		return session_path(id, buf, err);
	int rc = session_find_active(client, &active, err);
	if (rc < 0)
		return rc;
	if (active)
		return session_path(session_text(active, "id"), buf, err);
	error_set(err, EXIT_CODE_FAILED, "you have no active session");
	error_hint(err, "name one of `carve session list`, or request one: "
			"carve session request --vram 4");
	return -EXIT_CODE_FAILED;
}

void session_give_back(const struct client *client, const char *id)
{
	char path[SESSION_PATH_SIZE];
	struct error ignored;

	if (session_path(id, path, &ignored) == 0)
		(void)client_call(client, "DELETE", path, NULL, NULL, NULL, &ignored);
}

/* One daemon's socket may be named in several ways. */
static bool same_file(const char *a, const char *b)
{
	struct stat one, other;

	return stat(a, &one) == 0 && stat(b, &other) == 0 && one.st_dev == other.st_dev &&
	       one.st_ino == other.st_ino;
}

const char *session_meant(const struct client *client, const char *id)
{
	const char *attach = secure_getenv(ATTACH_ENV_SOCKET);

	if (id || !attach || !same_file(attach, client->attach))
		return id;
	return slice_env_session();
}

int session_get(const struct client *client, const char *id, json_t **ret, struct error *err)
{
	char path[SESSION_PATH_SIZE];
	int rc = session_locate(client, id, path, err);

	return rc < 0 ? rc : client_call(client, "GET", path, NULL, NULL, ret, err);
}

/* What a waiting one's explanation says beyond that of a request like it. */
static void explanation_add(json_t *explanation, const json_t *session)
{
	static const char *const keys[] = {"id", "state", "position", "created", "reason", NULL};

	for (int i = 0; keys[i]; i++)
		json_object_set(explanation, keys[i], json_object_get(session, keys[i]));
}

int session_explain(const struct client *client, const char *id, json_t **ret_session,
		    json_t **ret_explanation, struct error *err)
{
	char path[SESSION_PATH_SIZE + 16];
	int rc = session_get(client, id, ret_session, err);

	if (rc < 0)
		return rc;
	const json_t *session = *ret_session;
	if (strcmp(session_text(session, "state"), "waiting") != 0) {
		*ret_explanation = json_pack(
			"{s:O, s:O, s:b, s:s, s:O}", "id", json_object_get(session, "id"), "state",
			json_object_get(session, "state"), "granted", true, "message",
			session_text(session, "reason"), "on", json_object_get(session, "gpus"));
		return 0;
	}
	snprintf(path, sizeof(path), "/v1/explain/%s", session_text(session, "id"));
	rc = client_call(client, "GET", path, NULL, NULL, ret_explanation, err);
	if (rc == 0)
		explanation_add(*ret_explanation, session);
	return rc;
}

struct waiting {
	const struct client *client;
	const struct slice_request *request;
	bool said;
	char told[1024]; /* the last time */
};

/* This process's own request, as the daemon shows it: at which place it waits, and why. */
static void wait_describe(const struct waiting *waiting, char *buf, size_t size)
{
	cleanup_json json_t *sessions = NULL;
	struct error ignored;
	size_t i;
	json_t *session;

	buf[0] = '\0';
	if (client_call(waiting->client, "GET", "/v1/sessions", NULL, NULL, &sessions, &ignored) <
	    0)
		return;
	json_array_foreach(sessions, i, session)
	{
		if (!strcmp(session_text(session, "state"), "waiting") &&
		    session_number(session, "requester_pid") == (uint64_t)getpid())
			snprintf(buf, size, ", at place %" PRIu64 ": %s",
				 session_number(session, "position"),
				 session_text(session, "reason"));
	}
}

static void wait_tell(void *context)
{
	struct waiting *waiting = context;
	char wanted[UNITS_TEXT_SIZE], now[sizeof(waiting->told)];

	wait_describe(waiting, now, sizeof(now));
	if (waiting->said && !strcmp(now, waiting->told))
		return;
	waiting->said = true;
	memcpy(waiting->told, now, sizeof(now));
	fprintf(stderr, "carve: waiting up to %" PRIu64 " s for %s%s (Ctrl-C gives up)\n",
		waiting->request->wait_ns / 1000000000,
		waiting->request->bytes ? units_format_bytes(waiting->request->bytes, wanted)
					: "room",
		now);
}

int session_request(const struct client *client, const struct slice_request *request, json_t **ret,
		    struct error *err)
{
	struct waiting waiting = {.client = client, .request = request};
	struct client_patience patience = {
		.wait_ns = request->wait_ns,
		.slow = request->wait_ns && isatty(STDERR_FILENO) ? wait_tell : NULL,
		.slow_context = &waiting,
	};

	return client_session_request(client, request->body, &patience, ret, err);
}

/* Whether all of its GPUs have the same under this key, a number or a text. */
static bool gpus_same(const json_t *session, const char *key)
{
	const json_t *gpus = json_object_get(session, "gpus"), *first = json_array_get(gpus, 0);
	size_t i;
	json_t *gpu;

	json_array_foreach(gpus, i, gpu) if (!json_equal(json_object_get(gpu, key),
							 json_object_get(first, key))) return false;
	return true;
}

const char *session_size_text(const json_t *session, char buf[static SESSION_SIZE_SIZE])
{
	uint64_t least = session_number(session, "vram_bytes"), most = least;
	char low[UNITS_TEXT_SIZE], high[UNITS_TEXT_SIZE];
	size_t i;
	json_t *gpu;

	json_array_foreach(json_object_get(session, "gpus"), i, gpu) most =
		MAX(most, session_number(gpu, "vram_bytes"));
	units_format_bytes(least, low);
	units_format_bytes(most, high);
	snprintf(buf, SESSION_SIZE_SIZE, "%s%s%s", low, strcmp(low, high) != 0 ? "-" : "",
		 strcmp(low, high) != 0 ? high : "");
	return buf;
}

/* Where the GPUs differ, what was granted on each of them. */
static void grant_gpus_print(FILE *out, const char *prefix, const json_t *gpus)
{
	char size[UNITS_TEXT_SIZE], asked[UNITS_TEXT_SIZE];
	size_t i;
	json_t *gpu;

	json_array_foreach(gpus, i, gpu)
	{
		uint64_t bytes = session_number(gpu, "vram_bytes"),
			 requested = session_number(gpu, "requested_bytes");

		fprintf(out, "%s  GPU %" PRIu64 ": %s (%" PRIu64 " bytes)%s%s, %s\n", prefix,
			session_number(gpu, "index"), units_format_bytes(bytes, size), bytes,
			requested > bytes ? " of " : "",
			requested > bytes ? units_format_bytes(requested, asked) : "",
			session_text(gpu, "name"));
	}
}

static void tolerance_print(FILE *out, const char *prefix, const json_t *session)
{
	char size[UNITS_TEXT_SIZE], asked[UNITS_TEXT_SIZE];

	fprintf(out, "%sthe 93%% rule was applied", prefix);
	if (gpus_same(session, "vram_bytes"))
		fprintf(out, ": %s asked for, %s left and granted",
			units_format_bytes(session_number(session, "requested_bytes"), asked),
			units_format_bytes(session_number(session, "vram_bytes"), size));
	fputs(" (--vram-strict switches that off)\n", out);
}

/* What was asked for and which instance it became. */
static void mig_print(FILE *out, const char *prefix, const json_t *session)
{
	const json_t *near = json_object_get(session, "mig_near");
	const char *profile = session_text(session, "mig_profile");
	char asked[UNITS_TEXT_SIZE], size[UNITS_TEXT_SIZE];

	if (!*profile)
		return;
	if (json_is_true(json_object_get(session, "mig_shared"))) {
		fprintf(out, "%sin a MIG instance %s that others may share\n", prefix, profile);
		return;
	}
	fprintf(out, "%sMIG instance %s for the %s that were asked for\n", prefix, profile,
		units_format_bytes(session_number(session, "requested_bytes"), asked));
	if (near)
		fprintf(out, "%s%s holds %s: --mig-profile %s is enough where that is\n", prefix,
			session_text(near, "profile"),
			units_format_bytes(session_number(near, "memory_bytes"), size),
			session_text(near, "profile"));
}

void session_print_grant(FILE *out, const char *prefix, const json_t *session)
{
	const json_t *gpus = json_object_get(session, "gpus");
	bool same_size = gpus_same(session, "vram_bytes"), same_model = gpus_same(session, "name");
	uint64_t bytes = same_size ? session_number(session, "vram_bytes")
				   : session_gpus_sum(session, "vram_bytes");
	char size[UNITS_TEXT_SIZE], on[SESSION_GPUS_SIZE], instances[64] = "";

	if (*session_text(session, "mig_profile"))
		snprintf(instances, sizeof(instances), "in each of %zu instances on ",
			 json_array_size(gpus));
	fprintf(out, "%s%s: %s (%" PRIu64 " bytes) %s%s", prefix, session_text(session, "id"),
		units_format_bytes(bytes, size), bytes,
		!same_size                  ? "in all on "
		: json_array_size(gpus) < 2 ? "on "
		: instances[0]              ? instances
					    : "on each of ",
		session_gpus_text(session, on));
	if (same_size && same_model) {
		fprintf(out, ", %s\n", session_text(json_array_get(gpus, 0), "name"));
	} else {
		fputs(":\n", out);
		grant_gpus_print(out, prefix, gpus);
	}
	mig_print(out, prefix, session);
	if (json_is_true(json_object_get(session, "tolerance_applied")))
		tolerance_print(out, prefix, session);
}
