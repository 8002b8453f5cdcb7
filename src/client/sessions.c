#include "client/sessions.h"

#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/json_text.h"
#include "base/macros.h"
#include "base/units.h"
#include "client/client.h"
#include "proto/attach.h"
#include "slice/slice_env.h"

const char *session_text(const json_t *object, const char *key)
{
	return json_text(object, key);
}

const char *session_text_or_dash(const json_t *object, const char *key)
{
	const char *text = session_text(object, key);

	return *text ? text : "-";
}

const char *session_name_text(const json_t *session)
{
	return json_is_true(json_object_get(session, "current")) ? "(" SESSION_CURRENT ")"
								 : session_text(session, "name");
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
	for (size_t i = 0; i < count; i++)
		if (json_is_true(json_object_get(json_array_get(gpus, i), "gone"))) {
			size_t end = strlen(buf);

			snprintf(buf + end, SESSION_GPUS_SIZE - end, " (gone)");
			break;
		}
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

/* A daemon gives no more without parts (UNPAGED_LIVING in src/daemon/api/api_sessions.c). */
#define UNPAGED_MOST 256u

/* An older daemon gives them in one. */
static int parts_get(const struct client *client, const char *first, json_t **ret,
		     struct error *err)
{
	cleanup_json json_t *all = json_array();
	char path[192];

	snprintf(path, sizeof(path), "%s", first);
	for (;;) {
		cleanup_json json_t *part = NULL;
		int rc = client_call(client, "GET", path, NULL, NULL, &part, err);

		if (rc < 0)
			return rc;
		json_array_extend(all,
				  json_is_array(part) ? part : json_object_get(part, "sessions"));
		const char *next = json_string_value(json_object_get(part, "next"));
		if (!next)
			break;
		snprintf(path, sizeof(path), "%s%.100s", first, next);
	}
	*ret = steal_ptr(&all);
	return 0;
}

int sessions_get_all(const struct client *client, json_t **ret, struct error *err)
{
	return parts_get(client, "/v1/sessions?all=1&page=", ret, err);
}

int sessions_get_of(const struct client *client, uid_t uid, json_t **ret, struct error *err)
{
	char path[64];

	snprintf(path, sizeof(path), "/v1/sessions?uid=%u&living=", uid);
	return parts_get(client, path, ret, err);
}

int sessions_get(const struct client *client, json_t **ret, struct error *err)
{
	cleanup_json json_t *sessions = NULL;
	int rc = client_call(client, "GET", "/v1/sessions", NULL, NULL, &sessions, err);

	if (rc == 0 && json_array_size(sessions) >= UNPAGED_MOST)
		return parts_get(client, "/v1/sessions?living=", ret, err);
	*ret = rc == 0 ? steal_ptr(&sessions) : NULL;
	return rc;
}

int session_path(const char *id, char buf[static SESSION_PATH_SIZE], struct error *err)
{
	static const char allowed[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

	/* All characters of IDs and names may stand in a path; a text with others is neither. */
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
	cleanup_json json_t *current = NULL;

	if (id)
		return session_path(id, buf, err);
	int rc = session_get(client, NULL, &current, err);
	return rc < 0 ? rc : session_path(session_text(current, "id"), buf, err);
}

int session_inactive(const json_t *session, struct error *err)
{
	const char *id = session_text(session, "id"), *state = session_text(session, "state");
	const char *again = session_text(session, "request_again");

	if (strcmp(state, "ended") != 0)
		error_set(err, EXIT_CODE_FAILED, "session %s is not active, but %s", id, state);
	else
		error_set(err, EXIT_CODE_FAILED, "%ssession %s ended at %s%s%s",
			  *again ? "your " : "", id, session_text(session, "ended"),
			  !strcmp(session_text(session, "ended_by"), "time") ? " because " : ": ",
			  session_text(session, "reason"));
	if (*again)
		error_hint(err, "request a new one: %s", again);
	else
		error_hint(err, "`carve session list` shows those that have not ended");
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
	int rc = session_path(id ? id : SESSION_CURRENT, path, err);

	return rc < 0 ? rc : client_call(client, "GET", path, NULL, NULL, ret, err);
}

/* Adds the fields that a waiting session has and a request like it has not. */
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
