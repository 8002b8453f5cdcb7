/* The API's jobs. */
#pragma once

#include "proto/launcher.h"

struct call;
struct error;
struct warrant;

void api_get_jobs(struct call *call, const char *id);
void api_post_job(struct call *call, const char *id);
void api_get_job(struct call *call, const char *id);
void api_post_job_again(struct call *call, const char *text);
void api_patch_job(struct call *call, const char *text);
void api_delete_job(struct call *call, const char *text);
void api_get_job_events(struct call *call, const char *id);

/* The launcher's word for a text of the call's client, malloc'ed; NULL where the daemon has no
 * launcher. 0, or negative with *err. */
int api_job_warrant(const struct call *call, enum warrant_kind kind, const char *text,
		    struct warrant **ret, struct error *err);
