/* The end of a job is told to a command and to a URL, by the user who runs `carve job events`. */
#pragma once

#include <jansson.h>
#include <stdint.h>

struct cli;
struct error;

/* A command line shows its options to everybody, so they may be variables of the environment. */
#define JOB_EXEC_ENV "CARVE_EXEC"
#define JOB_WEBHOOK_ENV "CARVE_WEBHOOK"

struct job_tell {
	const char *command, *url; /* NULL: none */
	uint64_t timeout_ns;       /* the command is killed after it */
};

/* From options and variables. 0, or negative with *err. */
int job_tell_options(const struct cli *cli, struct job_tell *ret, struct error *err);
/* Tells the command, and waits until it has ended. 0: it succeeded. Else negative with *err, which
 * names neither the command nor what it printed. */
int job_tell_command(const struct job_tell *tell, const json_t *end, struct error *err);
/* Posts the end once. 0: the server took it (status 2xx). Else negative with *err, which names the
 * URL's host alone. */
int job_tell_url(const struct job_tell *tell, const json_t *end, struct error *err);
