#include "warden/operations.h"

#include <errno.h>
#include <linux/capability.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/macros.h"
#include "base/process.h"
#include "proto/warden_jobs.h"
#include "proto/warden_limits.h"
#include "proto/warden_mig.h"
#include "warden/message.h"
#include "warden/run.h"

/* ---- values ------------------------------------------------------------------------------- */

static bool signal_fits(const void *data)
{
	const struct warden_signal *r = data;

	/* (uid_t)-1 leaves a user as it is, where it is set. */
	return warden_names_process(r->pid, r->birth) && r->uid != UINT32_MAX && !r->reserved &&
	       (r->signal == SIGTERM || r->signal == SIGKILL);
}

static bool process_fits(const void *data)
{
	const struct warden_process *r = data;

	return warden_names_process(r->pid, r->birth) && !r->reserved;
}

static bool file_fits(const void *data)
{
	const struct warden_file *r = data;

	return r->file >= WARDEN_FILE_LOCK && r->file <= WARDEN_FILE_START && !r->reserved;
}

static bool nothing_fits(const void *data)
{
	return true;
}

static bool gpu_fits(const void *data)
{
	return warden_mig_names_gpu(data);
}

static bool place_fits(const void *data)
{
	return warden_mig_names_place(data);
}

static bool list_fits(const void *data)
{
	return warden_mig_wanted_fits(data);
}

static bool limit_fits(const void *data)
{
	return warden_limit_fits(data);
}

static bool limit_entry_fits(const void *data)
{
	return warden_limit_entry_fits(data);
}

static bool vouch_fits(const void *data)
{
	return warden_vouch_fits(data);
}

static bool job_fits(const void *data)
{
	return warden_job_fits(data);
}

static bool job_files_fits(const void *data)
{
	return warden_job_files_fits(data);
}

static bool job_remove_fits(const void *data)
{
	return warden_job_remove_fits(data);
}

static bool job_over_fits(const void *data)
{
	return warden_job_over_fits(data);
}

/* ---- mount namespaces --------------------------------------------------------------------- */

static int namespace_hold(struct warden_place *place, const struct warden_message *request,
			  struct warden_result *ret)
{
	const struct warden_process *r = (const void *)request->data;
	struct warden_namespace *found = (void *)ret->data;
	struct stat st;

	ret->fd = process_mount_namespace((struct process_id){.pid = r->pid, .birth = r->birth});
	if (ret->fd < 0)
		return ret->fd;
	if (fstat(ret->fd, &st) < 0)
		return -errno;
	*found = (struct warden_namespace){.device = st.st_dev, .inode = st.st_ino};
	return 0;
}

static int namespace_look(struct warden_place *place, const struct warden_message *request,
			  struct warden_result *ret)
{
	int rc = namespace_hold(place, request, ret);

	close_fd(&ret->fd);
	return rc;
}

/* ---- the table ---------------------------------------------------------------------------- */

/* The driver asks for SYS_ADMIN. Changes of GPUs are made one after the other. */
static const struct warden_room mig_room = {
	.name = "carve-mig", .capabilities = 1u << CAP_SYS_ADMIN, .most = 1, .most_of_owner = 1};

/* The driver asks for SYS_ADMIN. A cgroup is opened by its number with DAC_READ_SEARCH, and one is
 * made in a user's with DAC_OVERRIDE. */
static const struct warden_room limits_room = {
	.name = "carve-limits",
	.capabilities = 1u << CAP_SYS_ADMIN | 1u << CAP_DAC_OVERRIDE | 1u << CAP_DAC_READ_SEARCH,
	.most = 2,
	.most_of_owner = 1};

/* All that the warden does. docs/security.md has a line for each, too. */
static const struct warden_operation_entry table[] = {
	[WARDEN_SIGNAL] = {.name = "signal",
			   .size = sizeof(struct warden_signal),
			   .fits = signal_fits,
			   .run = warden_run_signal},
	[WARDEN_NAMESPACE_LOOK] = {.name = "namespace-look",
				   .size = sizeof(struct warden_process),
				   .answer_size = sizeof(struct warden_namespace),
				   .fits = process_fits,
				   .run = namespace_look},
	[WARDEN_NAMESPACE_HOLD] = {.name = "namespace-hold",
				   .size = sizeof(struct warden_process),
				   .answer_size = sizeof(struct warden_namespace),
				   .fits = process_fits,
				   .run = namespace_hold},
	[WARDEN_FILE] = {.name = "file",
			 .size = sizeof(struct warden_file),
			 .fits = file_fits,
			 .run = warden_run_file},
	[WARDEN_LEAVE] = {.name = "leave", .fits = nothing_fits, .run = warden_run_leave},
	[WARDEN_MIG_KINDS] = {.name = "mig-kinds",
			      .size = sizeof(struct warden_mig),
			      .answer_size = sizeof(struct warden_mig_kinds),
			      .room = &mig_room,
			      .fits = gpu_fits,
			      .run = warden_run_mig_kinds},
	[WARDEN_MIG_LIST] = {.name = "mig-list",
			     .size = sizeof(struct warden_mig_wanted),
			     .answer_size = sizeof(struct warden_mig_list),
			     .room = &mig_room,
			     .fits = list_fits,
			     .run = warden_run_mig_list},
	[WARDEN_MIG_MAKE] = {.name = "mig-make",
			     .size = sizeof(struct warden_mig),
			     .answer_size = sizeof(struct warden_mig_list),
			     .room = &mig_room,
			     .fits = place_fits,
			     .run = warden_run_mig_make},
	[WARDEN_MIG_REMOVE] = {.name = "mig-remove",
			       .size = sizeof(struct warden_mig),
			       .room = &mig_room,
			       .fits = place_fits,
			       .run = warden_run_mig_remove},
	[WARDEN_MIG_MODE] = {.name = "mig-mode",
			     .size = sizeof(struct warden_mig),
			     .room = &mig_room,
			     .fits = gpu_fits,
			     .run = warden_run_mig_mode},
	[WARDEN_LIMIT_PROBE] = {.name = "limit-probe",
				.room = &limits_room,
				.fits = nothing_fits,
				.run = warden_run_limit_probe},
	[WARDEN_LIMIT_PUT] = {.name = "limit-put",
			      .size = sizeof(struct warden_limit),
			      .room = &limits_room,
			      .fits = limit_fits,
			      .run = warden_run_limit_put},
	[WARDEN_LIMIT_ENTER] = {.name = "limit-enter",
				.size = sizeof(struct warden_limit_entry),
				.room = &limits_room,
				.fits = limit_entry_fits,
				.run = warden_run_limit_enter},
	[WARDEN_LIMIT_LEAVE] = {.name = "limit-leave",
				.size = sizeof(struct warden_limit_leave),
				.room = &limits_room,
				.fits = nothing_fits,
				.run = warden_run_limit_leave},
	[WARDEN_JOB_VOUCH] = {.name = "job-vouch",
			      .size = sizeof(struct warden_vouch),
			      .answer_size = sizeof(struct warrant),
			      .descriptors = 2,
			      .fits = vouch_fits,
			      .run = warden_run_job_vouch},
	[WARDEN_JOB_START] = {.name = "job-start",
			      .size = sizeof(struct warden_job),
			      .answer_size = sizeof(struct warden_started),
			      .descriptors = 1,
			      .fits = job_fits,
			      .run = warden_run_job_start},
	[WARDEN_JOB_END] = {.name = "job-end",
			    .size = sizeof(struct warden_job),
			    .fits = job_fits,
			    .run = warden_run_job_end},
	[WARDEN_JOB_FILES] = {.name = "job-files",
			      .size = sizeof(struct warden_job_files),
			      .answer_size = sizeof(struct warden_job_limits),
			      .fits = job_files_fits,
			      .run = warden_run_job_files},
	[WARDEN_JOB_REMOVE] = {.name = "job-remove",
			       .size = sizeof(struct warden_job_remove),
			       .fits = job_remove_fits,
			       .run = warden_run_job_remove},
	[WARDEN_JOB_OVER] = {.name = "job-over",
			     .size = sizeof(struct warden_job_over),
			     .fits = job_over_fits,
			     .run = warden_run_job_over},
};

const struct warden_operation_entry *warden_operation_find(uint16_t operation)
{
	return operation < ARRAY_SIZE(table) && table[operation].run ? &table[operation] : NULL;
}

int warden_operation_check(const struct warden_message *request)
{
	const struct warden_operation_entry *entry = warden_operation_find(request->head.operation);
	unsigned descriptors = 0;

	if (request->head.version != WARDEN_VERSION || !entry)
		return -EOPNOTSUPP;
	while (descriptors < WARDEN_DESCRIPTORS_MAX && request->fd[descriptors] >= 0)
		descriptors++;
	if (request->head.error || request->head.size != entry->size ||
	    descriptors != entry->descriptors || !entry->fits(request->data))
		return -EINVAL;
	return 0;
}

void warden_operation_run(struct warden_place *place, struct warden_message *request)
{
	const struct warden_operation_entry *entry = warden_operation_find(request->head.operation);
	struct warden_result result = {.fd = -1};
	int rc = entry->run(place, request, &result);

	warden_message_answer(request, rc, result.data, entry->answer_size, result.fd);
}
