/* Requests a slice for a verb, and prints what was granted, and why it ended. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

struct cli;
struct client;
struct error;
struct slice_request;

/* Requests a slice. While the request waits, says on a terminal why. 0 with *ret (owned by the
 * caller), or negative with the daemon's error in *err. */
int session_grant_request(const struct client *client, const struct slice_request *request,
			  json_t **ret, struct error *err);
/* Prints what was granted for the options of `cli`, each line after `prefix`. There is a line for
 * the slice, one for each GPU if these differ in model or size, and one if the 93% rule was
 * applied. */
void session_grant_print(const struct cli *cli, FILE *out, const char *prefix,
			 const json_t *session);
/* "carve: session s-7k2m9q ended: its time of 2h was up". False: it goes on, or it ended as
 * expected. */
#define SESSION_END_SIZE 256
bool session_end_text(const json_t *session, char buf[static SESSION_END_SIZE]);
/* "carve: carved's policy (over_policy) ended 1 process of session s-7k2m9q: ...". False: it ended
 * none between the two looks at the session. */
#define SESSION_KILLED_SIZE 256
bool session_killed_text(const json_t *before, const json_t *after,
			 char buf[static SESSION_KILLED_SIZE]);
