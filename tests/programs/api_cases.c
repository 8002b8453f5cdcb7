/* One call of include/carve/carve.h each, in C99: what it answers, or its error in three lines.
 * usage: api_cases HOST CASE [ID]; HOST "" is the usual one. */
#include <carve/carve.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As a later header's: with a field that this library does not know. */
struct later {
	carve_request_t known;
	int unknown;
};

#define BEGUN .size = sizeof(carve_request_t)

struct request_case {
	const char *name;
	struct later request;
};

static const struct request_case requests[] = {
	{"all",
	 {{BEGUN, .vram = "4", .gpu_compute = "25%", .gpu_ids = "0-1", .name = "n", .wait_for = 1.5,
	   .timeout = 60, .gpus = 2, .priority = -5, .ephemeral = 1, .strict = 1}}},
	{"gpu-memory", {{BEGUN, .gpu_memory = "4G"}}},
	{"gpu", {{BEGUN, .gpu = "0.25"}}},
	{"bytes", {{BEGUN, .vram_bytes = 2147483648u}}},
	{"earlier",
	 {{.size = offsetof(carve_request_t, gpu_compute), .vram = "4", .name = "cut off"}}},
	{"later", {{.size = sizeof(struct later), .vram = "4"}, 0}},
	{"later-asks", {{.size = sizeof(struct later), .vram = "4"}, 1}},
	{"no-struct-size", {{.vram = "4"}}},
	{"no-size", {{BEGUN}}},
	{"two-sizes", {{BEGUN, .vram = "4", .gpu = "0.5"}}},
	{"malformed", {{BEGUN, .vram = "4x"}}},
	{"too-many-bytes", {{BEGUN, .vram_bytes = UINT64_MAX}}},
	{"nan", {{BEGUN, .vram = "4", .wait_for = NAN}}},
	{"negative", {{BEGUN, .vram = "4", .timeout = -1}}},
	{"not-utf-8", {{BEGUN, .vram = "4", .name = "\xff"}}},
};

static const carve_request_t *request_of(const char *name)
{
	for (size_t i = 0; i < sizeof(requests) / sizeof(*requests); i++)
		if (!strcmp(requests[i].name, name))
			return &requests[i].request.known;
	return NULL;
}

/* The call of that name; *ret_json is set where it answers something. */
static int call(carve_t *carve, const char *name, const char *id, char **ret_json)
{
	const carve_request_t size = {BEGUN, .vram = "1"}, extra = {BEGUN, .vram = "1", .gpus = 2};

	if (!strcmp(name, "show"))
		return carve_session_show_json(carve, id, ret_json);
	if (!strcmp(name, "explain"))
		return carve_session_explain_json(carve, id, ret_json);
	if (!strcmp(name, "explain-request"))
		return carve_explain_json(carve, request_of("gpu"), ret_json);
	if (!strcmp(name, "resize"))
		return carve_session_resize(carve, id, &size, ret_json);
	if (!strcmp(name, "resize-more"))
		return carve_session_resize(carve, id, &extra, ret_json);
	if (!strcmp(name, "release"))
		return carve_session_release_with(carve, id, 0);
	if (!strcmp(name, "force"))
		return carve_session_release_with(carve, id, CARVE_RELEASE_FORCE);
	if (!strcmp(name, "no-such-flag"))
		return carve_session_release_with(carve, id, 2);
	return carve_session_request_with(carve, request_of(name), ret_json);
}

int main(int argc, char **argv)
{
	carve_t *carve;
	char *json = NULL;

	if (argc < 3)
		return 99;
	int code = carve_connect(*argv[1] ? argv[1] : NULL, &carve);

	if (!code)
		code = call(carve, argv[2], argv[3], &json);
	if (code != carve_error_code(carve))
		return 98;
	if (code)
		printf("%d\n%s\n%s\n", code, carve_error_message(carve), carve_error_hint(carve));
	else if (json)
		printf("%s\n", json);
	free(json);
	carve_close(carve);
	return code;
}
