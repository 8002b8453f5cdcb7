/* An item, the end of a job or an event, is told to a command and to a URL by the user who runs
 * `carve job events` or `carve events`. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct cli;
struct error;
struct follow_source;

/* A command line shows its options to everybody, so they may be variables of the environment. */
#define TELL_EXEC_ENV "CARVE_EXEC"
#define TELL_WEBHOOK_ENV "CARVE_WEBHOOK"

struct tell {
	const struct follow_source *source; /* lent */
	const char *command, *url;          /* NULL: none */
	uint64_t timeout_ns;                /* the command is killed after it */
};

/* Whether the environment names a command or a URL. */
bool tell_is_asked(void);
/* From options and variables. 0, or negative with *err. */
int tell_options(const struct cli *cli, const struct follow_source *source, struct tell *ret,
		 struct error *err);
/* Tells the command, and waits until it has ended. 0: it succeeded. Else negative with *err, which
 * names neither the command nor what it printed. */
int tell_command(const struct tell *tell, const json_t *item, struct error *err);
/* Posts the item once. 0: the server took it (status 2xx). Else negative with *err, which names the
 * URL's host alone. */
int tell_url(const struct tell *tell, const json_t *item, struct error *err);
