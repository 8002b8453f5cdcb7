#include "proto/warden_jobs.h"

#include "proto/shim.h"

bool warden_vouch_fits(const void *request)
{
	const struct warden_vouch *r = request;

	return (r->kind == WARRANT_JOB || r->kind == WARRANT_PODS) && r->count &&
	       r->count <= WARDEN_COUNT_MAX && r->attempts && r->attempts <= WARDEN_ATTEMPTS_MAX &&
	       !r->reserved;
}

bool warden_job_start_fits(const void *request)
{
	const struct warden_job *r = request;

	return r->job && r->job <= INT64_MAX && r->attempt && !r->below;
}

bool warden_job_end_fits(const void *request)
{
	const struct warden_job *r = request;

	return r->job && r->job <= INT64_MAX && r->attempt && r->below <= 1;
}

bool warden_job_files_fits(const void *request)
{
	const struct warden_job_files *r = request;

	return !r->reserved;
}

bool warden_job_remove_fits(const void *request)
{
	const struct warden_job_remove *r = request;

	return r->job && r->job <= INT64_MAX && r->attempt && r->files &&
	       r->files <= SHIM_FILES_ALL && !r->reserved;
}

bool warden_job_over_fits(const void *request)
{
	const struct warden_job_over *r = request;

	return r->first <= INT64_MAX && r->count && r->count <= WARDEN_OVER_MAX && !r->reserved;
}
