/* Asks for a slice through libcarve, looks at it, makes it smaller and gives it back.
 *
 * Usage: session [SIZE [SMALLER]]: as `carve run --vram` takes them (default 2GiB, then 1GiB).
 * Exit as `carve` does: 3 where there is no room, with what each GPU has left.
 *
 * Elsewhere: cc session.c $(pkg-config --cflags --libs carve) */
#include <carve/carve.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Prints what went wrong, and what would be right; returns the exit status. */
static int failed(const carve_t *carve, const char *what)
{
	fprintf(stderr, "session: %s: %s\n", what, carve_error_message(carve));
	if (*carve_error_hint(carve))
		fprintf(stderr, "hint: %s\n", carve_error_hint(carve));
	return carve_error_code(carve);
}

/* Prints an answer, which is freed. */
static void tell(const char *what, char *json)
{
	printf("%s: %s\n", what, json);
	free(json);
}

/* Why nobody gets that much: every GPU with what it has. */
static void explain(carve_t *carve, const carve_request_t *request)
{
	char *json;

	if (carve_explain_json(carve, request, &json) == 0)
		tell("explanation", json);
}

/* The things that can be done with a session; its name is as good as its ID. */
static int use(carve_t *carve, const char *name, const char *smaller)
{
	const carve_request_t size = {.size = sizeof(size), .vram = smaller};
	char *json;

	if (carve_session_show_json(carve, name, &json) != 0)
		return failed(carve, "show");
	tell("shown", json);
	if (carve_session_resize(carve, name, &size, &json) != 0)
		return failed(carve, "resize");
	tell("resized", json);
	return 0;
}

static int session(carve_t *carve, const char *vram, const char *smaller)
{
	char name[64];
	/* Ephemeral: if this program dies, the slice is free again. */
	const carve_request_t request = {
		.size = sizeof(request), .vram = vram, .name = name, .ephemeral = 1};
	char *json;

	snprintf(name, sizeof(name), "example-%ld", (long)getpid());
	if (carve_session_request_with(carve, &request, &json) != 0) {
		int status = failed(carve, "request");

		if (status == CARVE_E_NO_ROOM)
			explain(carve, &request);
		return status;
	}
	tell("granted", json);
	int status = use(carve, name, smaller);
	/* Nobody else is inside; CARVE_RELEASE_FORCE would end them first. */
	if (carve_session_release_with(carve, name, 0) != 0)
		return failed(carve, "release");
	printf("released\n");
	return status;
}

int main(int argc, char **argv)
{
	carve_t *carve;
	int status = carve_connect(NULL, &carve);

	if (status)
		failed(carve, "connect");
	else
		status = session(carve, argc > 1 ? argv[1] : "2GiB", argc > 2 ? argv[2] : "1GiB");
	carve_close(carve);
	return status;
}
