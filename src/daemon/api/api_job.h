/* The API's jobs. */
#pragma once

struct call;

void api_get_jobs(struct call *call, const char *id);
void api_post_job(struct call *call, const char *id);
void api_get_job(struct call *call, const char *id);
void api_post_job_again(struct call *call, const char *text);
void api_patch_job(struct call *call, const char *text);
void api_delete_job(struct call *call, const char *text);
void api_get_job_events(struct call *call, const char *id);
void api_get_job_ends(struct call *call, const char *id);
void api_get_job_log(struct call *call, const char *id);
