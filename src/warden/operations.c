#include "warden/operations.h"

#include <errno.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/host_root.h"
#include "base/macros.h"
#include "base/process.h"
#include "proto/warden_devices.h"
#include "proto/warden_jobs.h"
#include "proto/warden_limits.h"
#include "proto/warden_mig.h"
#include "proto/warden_outside.h"
#include "warden/message.h"
#include "warden/run.h"

/* ---- values ------------------------------------------------------------------------------- */

static bool signal_fits(const void *data)
{
	return warden_signal_fits(data);
}

static bool process_fits(const void *data)
{
	const struct warden_process *r = data;

	return warden_names_process(r->pid, r->birth) && !r->reserved;
}

static bool nothing_fits(const void *data)
{
	return true;
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

/* ---- root ----------------------------------------------------------------------------- */

static int root_look(struct warden_place *place, const struct warden_message *request,
		     struct warden_result *ret)
{
	const struct warden_process *r = (const void *)request->data;
	const struct process_id process = {.pid = r->pid, .birth = r->birth};
	bool is_root = host_root_is(r->pid);

	if (!process_alive(process))
		return -ESRCH;
	return is_root ? 0 : -EPERM;
}

/* ---- the table ---------------------------------------------------------------------------- */

#define RIGHT(capability) (1u << CAP_##capability)
/* Files of users' processes are read with SYS_PTRACE and DAC_READ_SEARCH, and SETUID lets the
 * kernel decide in a user's name. */
#define SIGNAL_RIGHTS (RIGHT(SETUID) | RIGHT(SYS_PTRACE) | RIGHT(DAC_READ_SEARCH))

/* One owner's process that is slow to read holds no signal of the others. */
static const struct warden_room signal_room = {.name = "carve-signals",
					       .capabilities = SIGNAL_RIGHTS,
					       .most = 4,
					       .most_of_owner = 1,
					       .patience_s = 5};

/* A driver that hangs holds none of the signals above. */
static const struct warden_room gpu_signal_room = {.name = "carve-signals",
						   .capabilities = SIGNAL_RIGHTS,
						   .most = 2,
						   .most_of_owner = 1,
						   .patience_s = 20};

/* The driver asks for SYS_ADMIN. Changes of GPUs are made one after the other. A change of the MIG
 * mode resets the GPU. */
static const struct warden_room mig_room = {.name = "carve-mig",
					    .capabilities = RIGHT(SYS_ADMIN),
					    .most = 1,
					    .most_of_owner = 1,
					    .patience_s = 120};

/* The driver asks for SYS_ADMIN. A cgroup is opened by its number with DAC_READ_SEARCH, and one is
 * made in a user's with DAC_OVERRIDE. SYS_PTRACE shows what a process of root's is. */
static const struct warden_room limits_room = {.name = "carve-limits",
					       .capabilities =
						       RIGHT(SYS_ADMIN) | RIGHT(DAC_OVERRIDE) |
						       RIGHT(DAC_READ_SEARCH) | RIGHT(SYS_PTRACE),
					       .most = 2,
					       .most_of_owner = 1,
					       .patience_s = 30};

/* A slow disk holds shims that ask for a right, and nobody else. */
static const struct warden_room sync_room = {
	.name = "carve-rights", .most = 1, .most_of_owner = 1, .patience_s = 600};

/* All that the warden does. docs/dev/security.md has a line for each, too. */
static const struct warden_operation_entry table[] = {
#define NOTHING 0
// NOLINTBEGIN(bugprone-macro-parentheses): the values of fields
#define SIZE(type) (uint16_t)sizeof(struct type)
#define OPERATION(number, request, answer, fds, where, check, function) \
	[WARDEN_##number] = {.size = request,                           \
			     .answer_size = answer,                     \
			     .descriptors = fds,                        \
			     .room = where,                             \
			     .fits = check,                             \
			     .run = function}
	// NOLINTEND(bugprone-macro-parentheses)
	OPERATION(SIGNAL, SIZE(warden_signal), NOTHING, 0, &signal_room, signal_fits,
		  warden_run_signal),
	OPERATION(SIGNAL_PEER, SIZE(warden_signal), NOTHING, 1, &signal_room, signal_fits,
		  warden_run_signal_peer),
	OPERATION(SIGNAL_ON_GPU, SIZE(warden_signal), NOTHING, 0, &gpu_signal_room, signal_fits,
		  warden_run_signal_on_gpu),
	OPERATION(SIGNAL_OUTSIDE, SIZE(warden_outside), NOTHING, 0, &gpu_signal_room,
		  warden_outside_fits, warden_run_signal_outside),
	OPERATION(SLICE_LOOK, SIZE(warden_process), SIZE(warden_marks), 0, &signal_room,
		  process_fits, warden_run_slice_look),
	OPERATION(DEVICE_ACCESS, SIZE(warden_device), NOTHING, 0, NULL, warden_device_fits,
		  warden_run_device_access),
	OPERATION(NAMESPACE_LOOK, SIZE(warden_process), SIZE(warden_namespace), 0, NULL,
		  process_fits, namespace_look),
	OPERATION(NAMESPACE_HOLD, SIZE(warden_process), SIZE(warden_namespace), 0, NULL,
		  process_fits, namespace_hold),
	OPERATION(ROOT_LOOK, SIZE(warden_process), NOTHING, 0, NULL, process_fits, root_look),
	OPERATION(MIG_KINDS, SIZE(warden_mig), SIZE(warden_mig_kinds), 0, &mig_room,
		  warden_mig_names_gpu, warden_run_mig_kinds),
	OPERATION(MIG_LIST, SIZE(warden_mig_wanted), SIZE(warden_mig_list), 0, &mig_room,
		  warden_mig_wanted_fits, warden_run_mig_list),
	OPERATION(MIG_MAKE, SIZE(warden_mig), SIZE(warden_mig_list), 0, &mig_room,
		  warden_mig_names_place, warden_run_mig_make),
	OPERATION(MIG_REMOVE, SIZE(warden_mig), NOTHING, 0, &mig_room, warden_mig_names_place,
		  warden_run_mig_remove),
	OPERATION(MIG_MODE, SIZE(warden_mig), NOTHING, 0, &mig_room, warden_mig_names_gpu,
		  warden_run_mig_mode),
	OPERATION(LIMIT_PROBE, NOTHING, NOTHING, 0, &limits_room, nothing_fits,
		  warden_run_limit_probe),
	OPERATION(LIMIT_PUT, SIZE(warden_limit), NOTHING, 0, &limits_room, warden_limit_fits,
		  warden_run_limit_put),
	OPERATION(LIMIT_ENTER, SIZE(warden_limit_entry), NOTHING, 0, &limits_room,
		  warden_limit_entry_fits, warden_run_limit_enter),
	OPERATION(LIMIT_LEAVE, SIZE(warden_limit_leave), NOTHING, 0, &limits_room, nothing_fits,
		  warden_run_limit_leave),
	OPERATION(JOB_VOUCH, SIZE(warden_vouch), SIZE(warrant), 2, NULL, warden_vouch_fits,
		  warden_run_job_vouch),
	OPERATION(JOB_START, SIZE(warden_job), SIZE(warden_started), 1, NULL, warden_job_start_fits,
		  warden_run_job_start),
	OPERATION(JOB_END, SIZE(warden_job), NOTHING, 0, NULL, warden_job_end_fits,
		  warden_run_job_end),
	OPERATION(JOB_FILES, SIZE(warden_job_files), SIZE(warden_job_limits), 0, NULL,
		  warden_job_files_fits, warden_run_job_files),
	OPERATION(JOB_REMOVE, SIZE(warden_job_remove), NOTHING, 0, NULL, warden_job_remove_fits,
		  warden_run_job_remove),
	OPERATION(JOB_OVER, SIZE(warden_job_over), NOTHING, 0, NULL, warden_job_over_fits,
		  warden_run_job_over),
	[WARDEN_OWN_SYNC] = {.descriptors = 1,
			     .own = true,
			     .room = &sync_room,
			     .fits = nothing_fits,
			     .run = warden_run_own_sync},
};

const struct warden_operation_entry *warden_operation_find(uint16_t operation)
{
	return operation < ARRAY_SIZE(table) && table[operation].run ? &table[operation] : NULL;
}

int warden_operation_check(const struct warden_message *request)
{
	const struct warden_operation_entry *entry = warden_operation_find(request->head.operation);
	unsigned descriptors = 0;

	if (request->head.version != WARDEN_VERSION || !entry || entry->own)
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
