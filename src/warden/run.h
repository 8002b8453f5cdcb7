/* The functions of the operations, for the table in operations.c. Each is called only with a
 * request whose size and values were checked. */
#pragma once

#include "warden/operations.h"

/* signal.c */
int warden_run_signal(struct warden_place *place, const struct warden_message *request,
		      struct warden_result *ret);
/* files.c */
int warden_run_file(struct warden_place *place, const struct warden_message *request,
		    struct warden_result *ret);
int warden_run_leave(struct warden_place *place, const struct warden_message *request,
		     struct warden_result *ret);
/* mig.c, in a child */
int warden_run_mig_kinds(struct warden_place *place, const struct warden_message *request,
			 struct warden_result *ret);
int warden_run_mig_list(struct warden_place *place, const struct warden_message *request,
			struct warden_result *ret);
int warden_run_mig_make(struct warden_place *place, const struct warden_message *request,
			struct warden_result *ret);
int warden_run_mig_remove(struct warden_place *place, const struct warden_message *request,
			  struct warden_result *ret);
int warden_run_mig_mode(struct warden_place *place, const struct warden_message *request,
			struct warden_result *ret);
/* limits.c, in a child */
int warden_run_limit_probe(struct warden_place *place, const struct warden_message *request,
			   struct warden_result *ret);
int warden_run_limit_put(struct warden_place *place, const struct warden_message *request,
			 struct warden_result *ret);
int warden_run_limit_enter(struct warden_place *place, const struct warden_message *request,
			   struct warden_result *ret);
int warden_run_limit_leave(struct warden_place *place, const struct warden_message *request,
			   struct warden_result *ret);
/* jobs.c; -EOPNOTSUPP where this warden starts no jobs */
int warden_run_job_vouch(struct warden_place *place, const struct warden_message *request,
			 struct warden_result *ret);
int warden_run_job_start(struct warden_place *place, const struct warden_message *request,
			 struct warden_result *ret);
int warden_run_job_end(struct warden_place *place, const struct warden_message *request,
		       struct warden_result *ret);
int warden_run_job_files(struct warden_place *place, const struct warden_message *request,
			 struct warden_result *ret);
int warden_run_job_remove(struct warden_place *place, const struct warden_message *request,
			  struct warden_result *ret);
int warden_run_job_over(struct warden_place *place, const struct warden_message *request,
			struct warden_result *ret);
