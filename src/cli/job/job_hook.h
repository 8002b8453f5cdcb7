/* The actions of `carve job events` at each change, as the user who runs it. The actions of an
 * agent are here, too: the daemon has `carve job events --stdin` do them as the agent's owner. */
#pragma once

#include <jansson.h>
#include <stdint.h>

struct cli;
struct error;

/* A command line shows its options to everybody, so they may be variables of the environment. */
#define JOB_HOOK_ENV "CARVE_HOOK"
#define JOB_WEBHOOK_ENV "CARVE_WEBHOOK"

struct job_hook {
	const char *command, *url; /* NULL: none */
	uint64_t timeout_ns;       /* the command is killed after it */
};

/* From options and variables. 0, or negative with *err. */
int job_hook_options(const struct cli *cli, struct job_hook *ret, struct error *err);
/* Both. 0, or negative with *err: the command could not be started. */
int job_hook_tell(const struct job_hook *hook, const json_t *event, struct error *err);
/* The program that an agent's hook is, as the daemon has it started; NULL with *err. */
json_t *job_hook_program(const struct cli *cli, const struct job_hook *hook, struct error *err);
