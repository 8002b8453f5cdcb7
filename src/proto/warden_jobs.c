#include "proto/warden_jobs.h"

#include "proto/shim.h"

bool warden_vouch_fits(const struct warden_vouch *r)
{
	return r->kind >= WARRANT_JOB && r->kind <= WARRANT_PODS && r->count &&
	       r->count <= WARDEN_COUNT_MAX && r->attempts && r->attempts <= WARDEN_ATTEMPTS_MAX &&
	       !r->reserved;
}

bool warden_job_fits(const struct warden_job *r)
{
	return r->job <= INT64_MAX && r->attempt && !r->reserved;
}

bool warden_job_files_fits(const struct warden_job_files *r)
{
	return !r->reserved;
}

bool warden_job_remove_fits(const struct warden_job_remove *r)
{
	return r->job <= INT64_MAX && r->attempt && r->files && r->files <= SHIM_FILES_ALL &&
	       !r->reserved;
}

bool warden_job_over_fits(const struct warden_job_over *r)
{
	return r->first <= INT64_MAX && r->count && r->count <= WARDEN_OVER_MAX && !r->reserved;
}
