/* A program on include/carve/carve.h, in C99: lists, requests, releases.
 * usage: api_client HOST VRAM */
#include <carve/carve.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Prints the error and returns its code. */
static int failed(const carve_t *carve, int code)
{
	fprintf(stderr, "%s\n%s\n", carve_error_message(carve), carve_error_hint(carve));
	return code;
}

/* Prints what a call answered, or its error. */
static int report(carve_t *carve, int code, char **json)
{
	if (code)
		return failed(carve, code);
	printf("%s\n", *json);
	free(*json);
	return 0;
}

int main(int argc, char **argv)
{
	carve_t *carve;
	char *json = NULL;

	if (argc != 3)
		return 99;
	int code = carve_connect(argv[1], &carve);

	if (code)
		code = failed(carve, code);
	else
		code = report(carve, carve_gpu_list_json(carve, &json), &json);
	if (!code)
		code = report(carve, carve_session_request(carve, argv[2], 0, &json), &json);
	if (!code)
		code = carve_session_release(carve, "s-abc123");
	carve_close(carve);
	return code;
}
