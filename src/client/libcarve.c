/* include/carve/carve.h: the command's client for other programs. */
#include <carve/carve.h>
#include <jansson.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/units.h"
#include "client/client.h"
#include "client/sessions.h"
#include "core/request.h"

/* The most that the daemon takes. */
#define SECONDS_MAX 1e9

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

int carve_error_code(const carve_t *carve)
{
	return carve ? carve->error.code : CARVE_E_FAILED;
}

const char *carve_error_message(const carve_t *carve)
{
	return carve ? carve->error.message : "out of memory";
}

const char *carve_error_hint(const carve_t *carve)
{
	return carve ? carve->error.hint : "";
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
	json_t *sessions;

	if (!call_begin(carve) || sessions_get(&carve->client, &sessions, &carve->error) < 0)
		return carve->error.code;
	return answer_text(carve, sessions, ret_json);
}

int carve_session_show_json(carve_t *carve, const char *id, char **ret_json)
{
	json_t *session;

	if (!call_begin(carve) || session_get(&carve->client, id, &session, &carve->error) < 0)
		return carve->error.code;
	return answer_text(carve, session, ret_json);
}

/* ---- requests ---------------------------------------------------------------------------- */

/* Takes the caller's struct, which another version of the header may have laid out. */
static int request_copy(carve_request_t *ret, const carve_request_t *given, struct error *err)
{
	const unsigned char *bytes = (const unsigned char *)given;

	*ret = (carve_request_t){0};
	if (!given || given->size < offsetof(carve_request_t, gpu_compute)) {
		error_set(err, EXIT_CODE_USAGE, "the request's size is %zu bytes, too few",
			  given ? given->size : 0);
		error_hint(err, "begin with: carve_request_t r = {.size = sizeof(r)};");
		return -EXIT_CODE_USAGE;
	}
	for (size_t i = sizeof(*ret); i < given->size; i++)
		if (bytes[i]) {
			error_set(err, EXIT_CODE_USAGE,
				  "the request asks for what this libcarve (%s) does not know",
				  CARVE_VERSION);
			error_hint(err, "install the libcarve that the program was built with");
			return -EXIT_CODE_USAGE;
		}
	memcpy(ret, given, given->size < sizeof(*ret) ? given->size : sizeof(*ret));
	return 0;
}

/* Checks the one size and puts it into the body. */
static int size_put(json_t *body, const carve_request_t *r, struct error *err)
{
	const char *const texts[REQUEST_SIZES] = {r->vram, r->gpu_memory, r->gpu};
	struct place_request place = REQUEST_NONE;
	int rc = 0;

	place.bytes = r->vram_bytes;
	if (!!r->vram + !!r->gpu_memory + !!r->gpu + !!r->vram_bytes != 1) {
		error_set(err, EXIT_CODE_USAGE,
			  "not exactly one of vram, gpu_memory, gpu and vram_bytes is set");
		error_hint(err, "for example: .vram = \"4\"");
		return -EXIT_CODE_USAGE;
	}
	if (place.bytes > SLICE_BYTES_MAX)
		return error_set(err, EXIT_CODE_USAGE, "vram_bytes: more than any GPU has");
	for (enum request_size i = 0; i < REQUEST_SIZES && rc == 0; i++)
		if (texts[i])
			rc = request_size_put(i, texts[i], &place, err);
	if (rc < 0)
		return rc;
	if (r->gpu)
		return json_object_set_new(body, "gpu", json_string(r->gpu));
	return json_object_set_new(body, "vram_bytes", json_integer((json_int_t)place.bytes));
}

static int text_put(json_t *body, const char *key, const char *text, struct error *err)
{
	if (!text || json_object_set_new(body, key, json_string(text)) == 0)
		return 0;
	return error_set(err, EXIT_CODE_USAGE, "%s: not a text in UTF-8", key);
}

static int seconds_put(json_t *body, const char *key, double seconds, struct error *err)
{
	if (seconds == 0)
		return 0;
	if (!(seconds > 0 && seconds <= SECONDS_MAX))
		return error_set(err, EXIT_CODE_USAGE, "%s: %g is no number of seconds up to 1e9",
				 key, seconds);
	return json_object_set_new(body, key, json_real(seconds));
}

static int details_put(json_t *body, const carve_request_t *r, struct error *err)
{
	int rc;

	if ((rc = text_put(body, "gpu_compute", r->gpu_compute, err)) < 0 ||
	    (rc = text_put(body, "gpu_ids", r->gpu_ids, err)) < 0 ||
	    (rc = text_put(body, "name", r->name, err)) < 0 ||
	    (rc = seconds_put(body, "wait_for", r->wait_for, err)) < 0 ||
	    (rc = seconds_put(body, "session_timeout", r->timeout, err)) < 0)
		return rc;
	if (r->gpus)
		json_object_set_new(body, "gpus", json_integer(r->gpus));
	if (r->priority)
		json_object_set_new(body, "priority", json_integer(r->priority));
	if (r->ephemeral)
		json_object_set_new(body, "ephemeral", json_true());
	if (r->strict)
		json_object_set_new(body, "vram_strict", json_true());
	return 0;
}

/* The request as the daemon is sent it, checked. */
static int request_body(const carve_request_t *given, carve_request_t *r, json_t **ret,
			struct error *err)
{
	cleanup_json json_t *body = json_object();
	int rc = request_copy(r, given, err);

	if (rc < 0 || (rc = size_put(body, r, err)) < 0 || (rc = details_put(body, r, err)) < 0)
		return err->code ? rc : error_set(err, EXIT_CODE_FAILED, "out of memory");
	*ret = steal_ptr(&body);
	return 0;
}

int carve_session_request_with(carve_t *carve, const carve_request_t *request, char **ret_json)
{
	cleanup_json json_t *body = NULL;
	carve_request_t r;
	json_t *session;

	if (!call_begin(carve) || request_body(request, &r, &body, &carve->error) < 0)
		return carve->error.code;
	struct client_patience patience = {.wait_ns = (uint64_t)(r.wait_for * 1e9)};
	if (client_session_request(&carve->client, body, &patience, &session, &carve->error) < 0)
		return carve->error.code;
	return answer_text(carve, session, ret_json);
}

int carve_session_request(carve_t *carve, const char *vram, unsigned wait_seconds, char **ret_json)
{
	const carve_request_t request = {
		.size = sizeof(request), .vram = vram, .wait_for = wait_seconds};

	return carve_session_request_with(carve, &request, ret_json);
}

int carve_explain_json(carve_t *carve, const carve_request_t *request, char **ret_json)
{
	cleanup_json json_t *body = NULL;
	carve_request_t r;
	json_t *explanation;

	if (!call_begin(carve) || request_body(request, &r, &body, &carve->error) < 0 ||
	    client_call(&carve->client, "POST", "/v1/explain", body, NULL, &explanation,
			&carve->error) < 0)
		return carve->error.code;
	return answer_text(carve, explanation, ret_json);
}

/* ---- sessions that are there ------------------------------------------------------------- */

/* As request_body(), of a size alone. */
static int size_body(const carve_request_t *given, json_t **ret, struct error *err)
{
	carve_request_t r;
	int rc = request_body(given, &r, ret, err);

	if (rc < 0 || json_object_size(*ret) == 1)
		return rc;
	return error_set(err, EXIT_CODE_USAGE, "a resize takes a size and nothing else");
}

int carve_session_resize(carve_t *carve, const char *id, const carve_request_t *size,
			 char **ret_json)
{
	cleanup_json json_t *body = NULL;
	char path[SESSION_PATH_SIZE];
	json_t *session;

	if (!call_begin(carve) || size_body(size, &body, &carve->error) < 0 ||
	    session_locate(&carve->client, id, path, &carve->error) < 0 ||
	    client_call(&carve->client, "PATCH", path, body, NULL, &session, &carve->error) < 0)
		return carve->error.code;
	return answer_text(carve, session, ret_json);
}

int carve_session_release_with(carve_t *carve, const char *id, unsigned flags)
{
	char path[SESSION_PATH_SIZE], query[SESSION_PATH_SIZE + sizeof("?force=1")];

	if (!call_begin(carve))
		return carve->error.code;
	if (flags & ~CARVE_RELEASE_FORCE)
		return -error_set(&carve->error, EXIT_CODE_USAGE,
				  "release: flags 0x%x: only CARVE_RELEASE_FORCE is known", flags);
	if (session_locate(&carve->client, id, path, &carve->error) < 0)
		return carve->error.code;
	snprintf(query, sizeof(query), "%s%s", path, flags ? "?force=1" : "");
	client_call(&carve->client, "DELETE", query, NULL, NULL, NULL, &carve->error);
	return carve->error.code;
}

int carve_session_release(carve_t *carve, const char *id)
{
	return carve_session_release_with(carve, id, 0);
}

int carve_session_explain_json(carve_t *carve, const char *id, char **ret_json)
{
	cleanup_json json_t *session = NULL;
	json_t *explanation = NULL;

	if (!call_begin(carve))
		return carve->error.code;
	if (session_explain(&carve->client, id, &session, &explanation, &carve->error) < 0) {
		json_decref(explanation);
		return carve->error.code;
	}
	return answer_text(carve, explanation, ret_json);
}
