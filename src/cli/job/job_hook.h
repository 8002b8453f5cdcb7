/* The actions of `carve job events` at each change, as the user who runs it. */
#pragma once

#include <jansson.h>

struct error;

/* Runs a command by the shell, with the event as JSON on its standard input and CARVE_JOB_ID and
 * CARVE_JOB_STATE in its environment, and waits for it. A command that fails is told of on standard
 * error. 0, or negative with *err: it could not be started. */
int job_hook_run(const char *command, const json_t *event, struct error *err);
/* Posts the event as JSON, up to three times. With CARVE_WEBHOOK_TOKEN in the environment that is
 * sent as a bearer's token. A failure is told of on standard error, with the URL's host only: the
 * rest may be secret. */
void job_webhook_post(const char *url, const json_t *event);
/* 0, or negative with *err: it is no http:// or https:// URL. */
int job_webhook_check(const char *url, struct error *err);
