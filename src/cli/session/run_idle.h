/* Tells the user of `carve run` that the slice is about to be released, as its programs use no GPU
 * time, while the command runs. */
#pragma once

#include <jansson.h>

struct client;

/* Begins to ask, in a thread of its own. The command must have been started, as a child of a
 * program with threads may do little. */
void run_idle_begin(const struct client *client, const json_t *session);
/* The command has ended: nothing more is told. */
void run_idle_end(void);
