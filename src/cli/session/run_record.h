/* carve run --record-command: the daemon keeps the command and its exit status with the session. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct cli;
struct client;

/* Whether the user wants that: by the option, or by CARVE_RECORD_COMMAND=1. */
bool run_record_wanted(const struct cli *cli);
/* Tells the daemon of the command before it begins. Returns the number of its record; 0: it is not
 * recorded, which stderr says. */
int64_t run_record_begin(const struct client *client, const char *session, char *const *argv);
/* Tells the daemon of its exit status (128 + n where signal n ended it). Takes 0. */
void run_record_end(const struct client *client, int64_t number, int status);
