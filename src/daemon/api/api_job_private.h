/* Functions that the requests of jobs share. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

struct call;
struct error;
struct job_spec;
struct node;
struct peer;

/* ---- api_job.c */
/* Answers that there is no such job. */
void api_job_none(struct call *call, const char *text);
/* Whether there is one that the caller may see. False: answered. */
bool api_job_is_known(struct call *call, const char *text);

/* ---- api_job_enqueue.c */
/* Whether the user may give jobs a priority above 0. */
bool api_job_may_raise(const struct peer *peer);
/* Whether such a job can ever run. 0, or negative with *err. */
int api_job_size_check(const struct node *node, const struct peer *peer, const char *queue,
		       const struct job_spec *spec, struct error *err);
/* Whether all jobs that it comes after are there, and are the user's. Likewise. */
int api_job_after_check(const struct node *node, const struct peer *peer,
			const struct job_spec *spec, struct error *err);
/* Enqueues what the body of POST /v1/jobs says. 0: the call is answered later; or negative with
 * *err. */
int api_job_enqueue(struct call *call, json_t *body, struct error *err);

/* ---- api_job_time.c */
/* Puts the default time limit into a job's text that names none. It is in the text that is vouched
 * for, so that nobody can name another one later. */
void api_job_time_default(const struct node *node, json_t *body);
/* Whether a job may run for that long. 0, or negative with *err. */
int api_job_time_check(const struct node *node, const struct job_spec *spec, struct error *err);

/* ---- api_job_change.c */
/* `changes` into a job's text. A job has one size: a new one takes the place of the one before. */
void api_job_changes_apply(json_t *body, const json_t *changes);
