/* The session that a command goes to, as `carve run` chooses it. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

struct cli;
struct client;
struct error;
struct slice_request;

struct run_choice {
	json_t *session; /* owned */
	bool one_off;    /* made for this command */
	/* For messages: the command, "podman run", and what follows its options, "IMAGE CMD". NULL:
	 * "run" and "CMD". */
	const char *verb, *operands;
};

/* By --session, --ephemeral, the size options and the user's current session. 0, or negative with
 * *err set. */
int run_choose(const struct cli *cli, const struct client *client,
	       const struct slice_request *request, struct run_choice *choice, struct error *err);
void run_choice_free(struct run_choice *choice);
#define cleanup_run_choice __attribute__((cleanup(run_choice_free)))
