/* simhost's verbs: each gets its own arguments (argv[0] is the verb) and returns the exit code. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

int verb_run(int argc, char **argv);
int verb_list(int argc, char **argv);
int verb_stat(int argc, char **argv);
int verb_trace(int argc, char **argv);
int verb_fault(int argc, char **argv);

struct error;
/* The name that the user called this program by: errors and help name it so. */
const char *verb_program(void);
/* Prints a help text, in which each "{}" stands for verb_program(). */
int verb_help(const char *text);
/* Whether --json is among the arguments: for errors of what stands before it, too. */
bool verb_wants_json(int argc, char **argv);
/* The error of an option that getopt_long() (with opterr = 0) did not take. */
int verb_bad_option(char **argv, struct error *err);
/* Prints an error as users read it, or with `json` as programs do, and returns its code. */
int verb_fail(const struct error *err, bool json);
/* Says how a request to the host ended (0 or -errno) and returns the exit code. */
int verb_report(const char *verb, int status, bool json);
struct client;
/* Connects to the host that this is inside of. NULL: there is none, and it has been said. */
struct client *verb_host_open(bool json);
