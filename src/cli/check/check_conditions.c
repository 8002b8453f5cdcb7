#include "cli/check/check_conditions.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/membarrier.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backend/installed.h"
#include "base/file.h"
#include "base/macros.h"
#include "base/units.h"
#include "cli/check/check_devices.h"
#include "client/gpu_holder.h"
#include "client/sessions.h"
#include "slice/places.h"

/* The database needs this much to go on for a while; with less left, sessions are soon refused. */
#define DISK_BYTES_MIN (1ull << 20)

enum state { OK, NOTE, PROBLEM };

struct finding {
	enum state state;
	char message[4096], advice[256];
};

/* ---- helpers ------------------------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static void find(struct finding *f, enum state state,
						       const char *format, ...)
{
	va_list args;

	f->state = state;
	va_start(args, format);
	/* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): clang 14 does not follow va_start */
	vsnprintf(f->message, sizeof(f->message), format, args);
	va_end(args);
}

/* One of several of a kind, GPUs for one: each is named. Those that OK says are none. */
__attribute__((format(printf, 3, 4))) static void find_each(struct finding *f, enum state state,
							    const char *format, ...)
{
	size_t used = f->state == OK ? 0 : strlen(f->message);
	va_list args;

	if (used)
		used += (size_t)snprintf(f->message + used, sizeof(f->message) - used, "; ");
	f->state = state;
	if (used >= sizeof(f->message))
		return;
	va_start(args, format);
	/* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): clang 14 does not follow va_start */
	vsnprintf(f->message + used, sizeof(f->message) - used, format, args);
	va_end(args);
}

static void advise(struct finding *f, const char *advice)
{
	snprintf(f->advice, sizeof(f->advice), "%s", advice);
}

/* A path of the host, below the root that a test may have named. */
static const char *host_path(const char *path, char buf[static PATH_MAX])
{
	const char *root = secure_getenv("CARVE_CHECK_ROOT");

	snprintf(buf, PATH_MAX, "%s%s", root ? root : "", path);
	return buf;
}

static bool exists(const char *path)
{
	char buf[PATH_MAX];

	return access(host_path(path, buf), F_OK) == 0;
}

/* The first process of this name (as /proc/PID/comm has it, 15 characters); 0: none. */
static pid_t process_named(const char *name)
{
	char root[PATH_MAX], path[PATH_MAX + 300], comm[64];
	DIR *dir = opendir(host_path("/proc", root));
	struct dirent *entry;
	pid_t found = 0;

	while (dir && !found && (entry = readdir(dir)) != NULL) {
		if (!isdigit((unsigned char)entry->d_name[0]))
			continue;
		snprintf(path, sizeof(path), "%s/%s/comm", root, entry->d_name);
		if (file_read(path, comm, sizeof(comm)) <= 0)
			continue;
		comm[strcspn(comm, "\n")] = '\0';
		if (!strncmp(comm, name, 15))
			found = (pid_t)strtol(entry->d_name, NULL, 10);
	}
	if (dir)
		closedir(dir);
	return found;
}

/* ---- other libraries in the way ------------------------------------------------------------- */

/* Whether a library of that name stands before the driver, or stands before calls that do. */
static bool stands_before_driver(const char *library)
{
	static const char *const marks[] = {"cuda", "nvidia", "nvml", "gpu", "hami", "gemini"};
	const char *slash = strrchr(library, '/');

	for (size_t i = 0; i < ARRAY_SIZE(marks); i++)
		if (strcasestr(slash ? slash + 1 : library, marks[i]))
			return true;
	return false;
}

/* Looks through a list of libraries; those of carve are no others. */
static void preload_look(struct finding *f, const struct check_input *in, char *list,
			 const char *where)
{
	char *state;

	for (char *library = strtok_r(list, " :\t\n", &state); library && f->state != PROBLEM;
	     library = strtok_r(NULL, " :\t\n", &state)) {
		if (in->places && (!strcmp(library, in->places->front_cuda) ||
				   !strcmp(library, in->places->front_nvml)))
			continue;
		if (stands_before_driver(library))
			find(f, PROBLEM, "%s preloads %.200s, which stands before the driver, too",
			     where, library);
		else
			find(f, NOTE, "%s preloads %.200s", where, library);
		advise(f, "two libraries before the driver undo each other's limits: take that one "
			  "out");
		if (f->state == NOTE)
			advise(f, "nothing, unless it stands before the driver");
	}
}

static void check_preload(const struct check_input *in, struct finding *f)
{
	char path[PATH_MAX], list[4096];
	const char *variable = secure_getenv("LD_PRELOAD");

	find(f, OK, "nobody else's library is preloaded");
	if (file_read(host_path("/etc/ld.so.preload", path), list, sizeof(list)) > 0)
		preload_look(f, in, list, "/etc/ld.so.preload");
	if (f->state == PROBLEM || !variable)
		return;
	snprintf(list, sizeof(list), "%s", variable);
	preload_look(f, in, list, "LD_PRELOAD");
}

static void check_mps(const struct check_input *in, struct finding *f)
{
	const char *variable = secure_getenv("CUDA_MPS_PIPE_DIRECTORY");
	pid_t pid = process_named("nvidia-cuda-mps-server");
	char pipe[512];

	if (!pid)
		pid = process_named("nvidia-cuda-mps-control");
	snprintf(pipe, sizeof(pipe), "%.480s/control", variable ? variable : "/tmp/nvidia-mps");
	find(f, OK, "MPS does not run");
	if (pid)
		find(f, PROBLEM,
		     "MPS runs (process %d): the driver shows its clients' memory as the server's, "
		     "so "
		     "that carve cannot tell whose it is",
		     (int)pid);
	else if (exists(pipe))
		find(f, NOTE, "MPS has run here: its pipe is at %.300s", pipe);
	advise(f, f->state == PROBLEM ? "end it: echo quit | nvidia-cuda-mps-control"
		  : f->state == NOTE  ? "nothing, as long as nobody starts it"
				      : "");
}

/* ---- the GPUs ------------------------------------------------------------------------------- */

static void check_driver_mode(const struct check_input *in, struct finding *f)
{
	size_t i;
	json_t *gpu;

	find(f, OK, "the driver lets several processes share each GPU");
	json_array_foreach(in->gpus, i, gpu)
	{
		const char *mode = session_text(gpu, "driver_mode");

		if (!*mode || !strcmp(mode, "shared"))
			continue;
		find_each(f, PROBLEM, "GPU %" PRIu64 " is in compute mode %s: %s",
			  session_number(gpu, "index"), mode,
			  !strcmp(mode, "prohibited") ? "no program may use it"
						      : "one process at a time may use it");
		advise(f, "as root: nvidia-smi --compute-mode=0");
	}
}

static void check_owner(const struct check_input *in, struct finding *f)
{
	char text[GPU_HOLDER_SIZE];
	size_t i;
	json_t *gpu;

	find(f, OK, "every GPU is this daemon's");
	json_array_foreach(in->gpus, i, gpu)
	{
		const json_t *holder = json_object_get(gpu, "held_by");

		if (!json_is_object(holder))
			continue;
		find_each(f, PROBLEM, "GPU %" PRIu64 " is %s", session_number(gpu, "index"),
			  gpu_holder_text(holder, text));
		advise(f, gpu_holder_advice(holder));
	}
}

static void check_gpus(const struct check_input *in, struct finding *f)
{
	size_t i;
	json_t *gpu;

	find(f, OK, "the driver answers for every GPU");
	json_array_foreach(in->gpus, i, gpu)
	{
		const char *state = session_text(gpu, "state");
		bool lost = !strcmp(state, "lost");

		if (!lost && strcmp(state, "failing") != 0)
			continue;
		find_each(f, PROBLEM, "GPU %" PRIu64 " is %s since %s: %s",
			  session_number(gpu, "index"), state, session_text(gpu, "state_since"),
			  session_text(gpu, "state_reason"));
		advise(f, lost ? "end what runs on it, then nvidia-smi --gpu-reset, or restart the "
				 "host"
			       : "dmesg may say why; restart the host if it stays so");
	}
}

static void check_drained(const struct check_input *in, struct finding *f)
{
	size_t i;
	json_t *gpu;

	find(f, OK, "no GPU is drained");
	json_array_foreach(in->gpus, i, gpu)
	{
		const json_t *drain = json_object_get(gpu, "drain");

		if (json_is_object(drain))
			find_each(f, NOTE, "GPU %" PRIu64 " was drained by %s at %s: %s",
				  session_number(gpu, "index"), session_text(drain, "by"),
				  session_text(drain, "since"), session_text(drain, "reason"));
	}
	if (f->state == NOTE)
		advise(f, "carve node resume lets carve grant slices there again");
}

/* Nothing can be mended there, and other GPUs are as they were. */
static void check_figures(const struct check_input *in, struct finding *f)
{
	size_t i;
	json_t *gpu;

	find(f, OK, "NVML has memory figures for every GPU");
	json_array_foreach(in->gpus, i, gpu)
	{
		if (strcmp(session_text(gpu, "state"), "unsupported") != 0)
			continue;
		find_each(f, NOTE, "GPU %" PRIu64 ": %s", session_number(gpu, "index"),
			  session_text(gpu, "state_reason"));
		advise(f, "use other GPUs, or this one without carve");
	}
}

static void check_outside(const struct check_input *in, struct finding *f)
{
	char text[UNITS_TEXT_SIZE];
	size_t i;
	json_t *gpu;

	find(f, OK, "no program outside carve holds GPU memory");
	json_array_foreach(in->gpus, i, gpu)
	{
		uint64_t beyond = session_number(gpu, "beyond_bytes");
		uint64_t bytes = session_number(gpu, "outside_bytes");

		bytes -= MIN(beyond, bytes);
		if (!bytes)
			continue;
		find_each(f, NOTE,
			  "programs outside carve hold %s of GPU %" PRIu64
			  "; no more than that is kept free for them",
			  units_format_bytes(bytes, text), session_number(gpu, "index"));
		advise(f, "`carve outside` names them; run them in slices (those of sessions whose "
			  "database was moved away are in slices, but may still grow)");
	}
}

/* Programs of sessions that hold more than their slices: those that bypassed carve's library. */
static void check_beyond(const struct check_input *in, struct finding *f)
{
	char text[UNITS_TEXT_SIZE];
	size_t i;
	json_t *gpu;

	find(f, OK, "no session's programs hold more than its slice");
	json_array_foreach(in->gpus, i, gpu)
	{
		uint64_t bytes = session_number(gpu, "beyond_bytes");

		if (!bytes)
			continue;
		find_each(f, NOTE,
			  "programs of sessions hold %s of GPU %" PRIu64 " beyond their slices",
			  units_format_bytes(bytes, text), session_number(gpu, "index"));
		advise(f, "session list marks these sessions with !, session show names the "
			  "programs; over_policy can end them");
	}
}

/* ---- MIG --------------------------------------------------------------------------------------
 */

static void check_mig_mode(const struct check_input *in, struct finding *f)
{
	size_t i;
	json_t *gpu;

	find(f, OK, "no change of a GPU's MIG mode is pending");
	json_array_foreach(in->gpus, i, gpu)
	{
		bool now = json_is_true(json_object_get(gpu, "mig"));

		if (!json_is_true(json_object_get(gpu, "mig_capable")) ||
		    now == json_is_true(json_object_get(gpu, "mig_pending")))
			continue;
		find_each(f, NOTE, "MIG mode of GPU %" PRIu64 " is %s, and %s is pending",
			  session_number(gpu, "index"), now ? "on" : "off", now ? "off" : "on");
		advise(f,
		       "it takes a reset while nobody uses the GPU (nvidia-smi --gpu-reset -i N), "
		       "or a reboot");
	}
}

static void check_mig_role(const struct check_input *in, struct finding *f)
{
	size_t i;
	json_t *gpu;

	find(f, OK, "GPUs with the MIG role give out instances");
	json_array_foreach(in->gpus, i, gpu)
	{
		const char *problem = session_text(gpu, "mig_problem");
		const char *refusal = session_text(gpu, "mig_refusal");

		if (*refusal) {
			find_each(f, PROBLEM, "GPU %" PRIu64 " makes no MIG instances now: %s",
				  session_number(gpu, "index"), refusal);
			advise(f, "other GPUs are used meanwhile; carve tries this one again "
				  "within 10 s, where a request needs it");
		}
		if (!*problem)
			continue;
		find_each(f, PROBLEM,
			  "GPU %" PRIu64 " has the MIG role and gives out no instances: %s",
			  session_number(gpu, "index"), problem);
		advise(f,
		       "carve node set-role --dynamic-mig-enabled --enable-mode switches the mode "
		       "on; "
		       "instances take root, or the node /dev/nvidia-caps/nvidia-cap1; carve node "
		       "remove-role gives the GPU back");
	}
}

static void check_mig_foreign(const struct check_input *in, struct finding *f)
{
	char text[UNITS_TEXT_SIZE];
	size_t i;
	json_t *gpu;

	find(f, OK, "all MIG instances of GPUs with the role are carve's");
	json_array_foreach(in->gpus, i, gpu)
	{
		uint64_t count = session_number(gpu, "mig_foreign");

		if (!count)
			continue;
		find_each(f, NOTE, "GPU %" PRIu64 " has %s that carve did not make",
			  session_number(gpu, "index"),
			  units_format_count(count, "MIG instance", text));
		advise(f,
		       "carve leaves them alone, and does not count their room as free; carve mig "
		       "list shows them");
	}
}

/* The kernel module tells numbers, and user space makes nodes of them. */
static void check_mig_nodes(const struct check_input *in, struct finding *f)
{
	bool any = false;
	size_t i;
	json_t *gpu;

	json_array_foreach(in->gpus, i, gpu) any |= json_is_true(json_object_get(gpu, "mig"));
	find(f, OK, "programs find the device nodes of MIG instances");
	if (!any || !exists("/proc/driver/nvidia/capabilities") || exists("/dev/nvidia-caps"))
		return;
	find(f, PROBLEM, "/dev/nvidia-caps is not there: no program can use a MIG instance");
	advise(f, "as root: nvidia-modprobe -f /proc/driver/nvidia/capabilities/mig/config");
}

/* ---- carve's own parts ---------------------------------------------------------------------- */

static void check_versions(const struct check_input *in, struct finding *f)
{
	const char *version = session_text(in->daemon, "version");
	char link[64], target[PATH_MAX];

	if (!in->daemon) {
		find(f, OK, "no daemon answers: there is nothing to compare");
		return;
	}
	if (strcmp(version, CARVE_VERSION) != 0) {
		find(f, PROBLEM, "the daemon is carved %s, this is carve %s with its libraries",
		     version, CARVE_VERSION);
		advise(f, "have the daemon become the new program: carved --takeover");
		return;
	}
	find(f, OK, "command, libraries and daemon are of one version, %s", version);
	snprintf(link, sizeof(link), "/proc/%" PRIu64 "/exe", session_number(in->daemon, "pid"));
	ssize_t n = readlink(link, target, sizeof(target) - 1);
	if (n <= 0 || !in->places)
		return;
	target[n] = '\0';
	if (!strcmp(target, in->places->daemon))
		return;
	if (strstr(target, " (deleted)")) {
		find(f, NOTE, "the daemon's program was replaced since it was started");
		advise(f, "have the daemon become the present program: carved --takeover");
	} else {
		find(f, NOTE, "the daemon runs another build: %.300s", target);
		advise(f, "end it (SIGTERM), and the next carve command starts the present one; "
			  "sessions survive");
	}
}

/* Limits and priorities of the shell that started the daemon, which it could not put back. */
static void check_limits(const struct check_input *in, struct finding *f)
{
	size_t i;
	json_t *text;

	find(f, OK, "no limit of a shell's binds the daemon");
	if (!in->daemon)
		find(f, OK, "no daemon answers: there is nothing that a limit could bind");
	json_array_foreach(json_object_get(in->daemon, "limited"), i, text)
	{
		find_each(f, PROBLEM, "%s%s",
			  i ? "" : "the daemon has limits of the shell that started it: ",
			  json_string_value(text));
		advise(f, "end it, and have a carve command start it from a shell without them; "
			  "or run the service");
	}
	if (f->state == PROBLEM)
		return;
	json_array_foreach(json_object_get(in->daemon, "limited_notes"), i, text)
	{
		find_each(f, NOTE, "%s%s", i ? "" : "the daemon: ", json_string_value(text));
		advise(f, "run the service; or end the daemon, and have a carve command start it "
			  "(only root can set its oom_score_adj to 0)");
	}
}

static void check_configuration(const struct check_input *in, struct finding *f)
{
	const char *wrong = session_text(in->daemon, "config_error");

	size_t i;
	json_t *text;

	find(f, OK, "the daemon's configuration is right");
	json_array_foreach(json_object_get(in->daemon, "config_notes"), i, text)
	{
		find_each(f, NOTE, "%s", json_string_value(text));
		advise(f, "mend what is named, or the file; then systemctl reload carved, or "
			  "SIGHUP to the daemon");
	}
	if (!*wrong)
		return;
	find(f, PROBLEM, "the configuration is wrong, and the last good settings hold: %.500s",
	     wrong);
	advise(f, "mend the file, then systemctl reload carved, or SIGHUP to the daemon");
}

/* A job that forks without end takes the machine's processes where they are not limited. */
static void check_job_tasks(const struct check_input *in, struct finding *f)
{
	const json_t *most = json_object_get(in->daemon, "job_tasks");

	find(f, OK, "the daemon starts no other users' jobs");
	if (!json_is_integer(most))
		return;
	find(f, OK, "a job may have %" JSON_INTEGER_FORMAT " processes and threads",
	     json_integer_value(most));
	if (!strcmp(session_text(in->daemon, "job_tasks_of"), "job"))
		return;
	if (json_integer_value(most))
		find(f, NOTE,
		     "all jobs of a user, and the user's other programs, may have "
		     "%" JSON_INTEGER_FORMAT
		     " processes and threads together: the warden has no cgroup with the pids "
		     "controller, so ulimit -u counts them",
		     json_integer_value(most));
	else
		find(f, NOTE, "a job may have as many processes as the machine can");
	advise(f, "run carve-warden.service with systemd 254 or newer: then each job has a limit "
		  "of its own");
}

/* Jobs of users wait for it, and nothing else does. */
static void check_launcher(const struct check_input *in, struct finding *f)
{
	json_int_t silent = json_integer_value(json_object_get(in->daemon, "launcher_silent_s"));

	find(f, OK, "the warden answers, or is not needed");
	if (!silent)
		return;
	find(f, PROBLEM,
	     "the warden has not answered for %" JSON_INTEGER_FORMAT
	     " s: users' jobs neither start nor end meanwhile",
	     silent);
	advise(f, "see what it waits for: cat /proc/$(pgrep 'carve-warden|carve-supervis')/stack; "
		  "if it hangs, restart that service, or the daemon");
}

/* Where the daemon's database is: `dir` itself, or where the link there says. */
static void state_dir(const char *dir, char buf[static PATH_MAX])
{
	char link[PATH_MAX];

	snprintf(link, sizeof(link), "%s/carve.db", dir);
	ssize_t n = readlink(link, buf, PATH_MAX - 1);
	char *slash = n > 0 && buf[0] == '/' ? memrchr(buf, '/', (size_t)n) : NULL;
	if (slash)
		*slash = '\0';
	else
		snprintf(buf, PATH_MAX, "%s", dir);
}

static void disk_look(struct finding *f, const char *dir)
{
	struct statvfs disk;
	struct stat st;
	char left[UNITS_TEXT_SIZE];

	if (statvfs(dir, &disk) < 0 || !disk.f_blocks || stat(dir, &st) < 0)
		return;
	/* Blocks that are reserved for root are there for root's daemon, too. */
	bool root = st.st_uid == 0;
	uint64_t bytes = (uint64_t)disk.f_frsize * (root ? disk.f_bfree : disk.f_bavail);
	if (bytes < DISK_BYTES_MIN)
		find_each(f, PROBLEM, "the disk of %.300s is full (%s left)", dir,
			  units_format_bytes(bytes, left));
	else if (disk.f_files && !(root ? disk.f_ffree : disk.f_favail))
		find_each(f, PROBLEM, "the disk of %.300s has no room for another file", dir);
}

static void check_disk(const struct check_input *in, struct finding *f)
{
	char state[PATH_MAX];

	find(f, OK, "there is room for what carved writes");
	if (!in->runtime)
		return;
	disk_look(f, in->runtime);
	state_dir(in->runtime, state);
	if (strcmp(state, in->runtime) != 0)
		disk_look(f, state);
	if (f->state == PROBLEM)
		advise(f, "make room there: carved keeps its sessions there, and refuses new ones "
			  "without; /usr/share/doc/carve/admin/running.md, The disk is full");
}

/* Files of the daemon's that a cleaner, or somebody, removed. */
static void check_files(const struct check_input *in, struct finding *f)
{
	const json_t *vanished = json_object_get(in->daemon, "vanished");
	uint64_t made = session_number(vanished, "made_anew");

	find(f, OK, "the daemon's files are where it made them");
	if (!json_is_object(vanished))
		return;
	find(f, NOTE,
	     "the daemon's files in %s were removed, and made anew: %" PRIu64
	     " so far, the last one %s at %s",
	     in->runtime ? in->runtime : "its directory", made, session_text(vanished, "file"),
	     session_text(vanished, "at"));
	const char *dot = strrchr(session_text(vanished, "file"), '.');
	if (dot && !strcmp(dot, ".sock") && exists("/run/systemd/system") && in->runtime &&
	    !strcmp(in->runtime, RUNTIME_DIR_SYSTEM))
		advise(f, "exempt this directory from what cleans there; then, as root: systemctl "
			  "restart carved.socket carved-attach.socket (sessions go on)");
	else
		advise(f, "exempt this directory from what cleans there (tmpfiles.d, tmpreaper, a "
			  "cron job)");
}

static void devices_look(struct devices_found *ret)
{
	const char *root = secure_getenv("CARVE_CHECK_ROOT");

	check_devices_look(root ? root : "", ret);
}

/* A system daemon opens closed files to the users of its slices. */
static bool daemon_opens(const struct check_input *in)
{
	return json_is_true(json_object_get(in->daemon, "system"));
}

static void check_permissions(const struct check_input *in, struct finding *f)
{
	struct devices_found devices;

	devices_look(&devices);
	find(f, OK, "the driver's devices may be opened");
	if (!devices.any) {
		find(f, OK, "there are no devices of the driver");
	} else if (devices.refused && devices.closed && daemon_opens(in)) {
		find(f, OK, "the driver's devices are opened to you while you have a slice");
	} else if (devices.refused) {
		find(f, PROBLEM, "%s cannot be opened for reading and writing by you",
		     devices.file);
		advise(f, "it wants mode 0666, or you in its group; the driver's udev rules set "
			  "that");
	}
}

/* Whether programs reach the GPUs in slices alone. */
static void check_mandatory(const struct check_input *in, struct finding *f)
{
	struct devices_found devices;

	devices_look(&devices);
	if (!devices.any) {
		find(f, OK, "there are no devices of the driver that a program could open");
	} else if (!daemon_opens(in)) {
		find(f, OK, "a user's own daemon leaves the driver's devices to everybody");
	} else if (!devices.closed) {
		find(f, NOTE,
		     "carve is not mandatory: every user can open %s, and use the GPUs without "
		     "a slice",
		     devices.file);
		advise(f, "man carve-outside, CLOSED DEVICE FILES, says how only users of slices "
			  "reach them");
	} else if (devices.members[0]) {
		find(f, NOTE,
		     "carve is mandatory, but for group %s: %s can use the GPUs without a slice",
		     devices.group, devices.members);
		advise(f, "take them out of the group (gpasswd -d USER GROUP), where that is not "
			  "meant");
	} else {
		find(f, OK,
		     "carve is mandatory: only root, and users who have a slice on a GPU, can "
		     "open it");
	}
}

/* The unknown functions whose names begin so, each by its name. False: there are none. */
static bool unknown_find(const struct check_input *in, struct finding *f, enum state state,
			 const char *prefix, const char *whose)
{
	size_t i, count = 0, told = 0;
	char words[UNITS_TEXT_SIZE];
	json_t *name;

	json_array_foreach(in->unknown, i, name) count +=
		!strncmp(json_string_value(name), prefix, strlen(prefix));
	if (!count)
		return false;
	find(f, state,
	     "carve does not know %s of %s:", units_format_count(count, "function", words), whose);
	json_array_foreach(in->unknown, i, name)
	{
		size_t used = strlen(f->message), room = sizeof(f->message) - used;

		if (strncmp(json_string_value(name), prefix, strlen(prefix)) != 0)
			continue;
		if (strlen(json_string_value(name)) + sizeof(", and 65536 more") > room) {
			snprintf(f->message + used, room, " and %zu more", count - told);
			break;
		}
		snprintf(f->message + used, room, "%s %s", told++ ? "," : "",
			 json_string_value(name));
	}
	return true;
}

/* The driver's figures tell what memory such a function takes. Nothing holds up what it submits. */
static void check_unknown_functions(const struct check_input *in, struct finding *f)
{
	find(f, OK, "carve knows all functions of the driver");
	if (!unknown_find(in, f, PROBLEM, "cu", "the driver"))
		return;
	advise(f, "they reach the driver as they are: memory that they take is counted within a "
		  "second by the driver's figures, and their work does not wait for the turns of "
		  "time-slicing; install a carve that knows this driver");
}

/* They take no memory and submit nothing. */
static void check_unknown_nvml(const struct check_input *in, struct finding *f)
{
	find(f, OK, "carve knows all functions of NVML");
	if (unknown_find(in, f, NOTE, "nvml", "NVML"))
		advise(f,
		       "they reach the driver as they are, and may tell a slice of the whole GPU; "
		       "install a carve that knows this driver");
}

/* ---- the kernel ----------------------------------------------------------------------------- */

static void check_memfd(const struct check_input *in, struct finding *f)
{
	cleanup_close int fd = memfd_create("carve-check", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	find(f, OK, "the kernel makes sealed memory files");
	if (fd >= 0)
		return;
	find(f, PROBLEM, "memfd_create: %s: no ledger can be made", strerrordesc_np(errno));
	advise(f, "a kernel of 3.17 or newer; a seccomp filter of a container must let it through");
}

static void check_pidfd(const struct check_input *in, struct finding *f)
{
	cleanup_close int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

	find(f, OK, "the kernel tells of the end of processes");
	if (fd >= 0)
		return;
	find(f, PROBLEM, "pidfd_open: %s: the end of processes cannot be watched",
	     strerrordesc_np(errno));
	advise(f, "a kernel of 5.3 or newer; a seccomp filter of a container must let it through");
}

static void check_membarrier(const struct check_input *in, struct finding *f)
{
	long commands = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);

	find(f, OK, "the kernel has memory barriers for other processes");
	if (commands >= 0 && (commands & MEMBARRIER_CMD_GLOBAL_EXPEDITED))
		return;
	find(f, PROBLEM, "membarrier: %s: the time of a GPU cannot be divided",
	     commands < 0 ? strerrordesc_np(errno) : "not expedited");
	advise(f, "a kernel of 4.16 or newer; slices of memory work without");
}

static void check_cgroup(const struct check_input *in, struct finding *f)
{
	find(f, OK, "cgroups are of version 2");
	if (exists("/sys/fs/cgroup/cgroup.controllers"))
		return;
	find(f, NOTE,
	     "cgroups of version 2 are not mounted: limits of the driver's own cannot be used");
	advise(f, "boot with systemd.unified_cgroup_hierarchy=1");
}

static void check_persistence(const struct check_input *in, struct finding *f)
{
	find(f, OK, "the driver stays loaded between programs");
	if (!exists("/proc/driver/nvidia/version")) {
		find(f, OK, "no kernel driver whose GPUs would have to be woken up");
		return;
	}
	if (in->daemon || exists("/run/nvidia-persistenced/socket") ||
	    process_named("nvidia-persistenced"))
		return; /* the daemon holds the driver open, too */
	find(f, NOTE, "nothing keeps the GPUs awake: the first program on each waits for seconds");
	advise(f, "start nvidia-persistenced, or carved as a service");
}

/* ---- all ------------------------------------------------------------------------------------ */

static const struct {
	const char *name;
	void (*look)(const struct check_input *input, struct finding *finding);
} checks[] = {
	{"preload", check_preload},
	{"mps", check_mps},
	{"compute_mode", check_driver_mode},
	{"owner", check_owner},
	{"gpus", check_gpus},
	{"drained", check_drained},
	{"figures", check_figures},
	{"outside", check_outside},
	{"beyond", check_beyond},
	{"mig_mode", check_mig_mode},
	{"mig_role", check_mig_role},
	{"mig_foreign", check_mig_foreign},
	{"mig_nodes", check_mig_nodes},
	{"versions", check_versions},
	{"limits", check_limits},
	{"configuration", check_configuration},
	{"job_tasks", check_job_tasks},
	{"launcher", check_launcher},
	{"disk", check_disk},
	{"files", check_files},
	{"permissions", check_permissions},
	{"mandatory", check_mandatory},
	{"memfd", check_memfd},
	{"pidfd", check_pidfd},
	{"membarrier", check_membarrier},
	{"cgroup", check_cgroup},
	{"persistence", check_persistence},
	{"functions", check_unknown_functions},
	{"nvml_functions", check_unknown_nvml},
};

static const char *const state_names[] = {[OK] = "ok", [NOTE] = "note", [PROBLEM] = "problem"};

json_t *check_conditions(const struct check_input *input)
{
	json_t *list = json_array();

	for (size_t i = 0; i < ARRAY_SIZE(checks); i++) {
		struct finding finding = {0};

		checks[i].look(input, &finding);
		json_array_append_new(list,
				      json_pack("{s:s, s:s, s:s, s:s}", "name", checks[i].name,
						"state", state_names[finding.state], "message",
						finding.message, "advice", finding.advice));
	}
	return list;
}

void check_conditions_print(const json_t *conditions, const json_t *missing, bool all)
{
	size_t i, passed = 0, notes = 0;
	json_t *item;

	json_array_foreach(conditions, i, item)
	{
		const char *state = session_text(item, "state");

		passed += !strcmp(state, state_names[OK]);
		notes += !strcmp(state, state_names[NOTE]);
		if (all && !strcmp(state, state_names[OK]))
			printf("passed:    %s\n", session_text(item, "message"));
	}
	json_array_foreach(conditions, i,
			   item) if (!strcmp(session_text(item, "state"), state_names[NOTE]))
		printf("note:      %s; %s\n", session_text(item, "message"),
		       session_text(item, "advice"));
	/* The problems among the conditions are in this list, too. */
	json_array_foreach(missing, i, item) printf("problem:   %s\n", json_string_value(item));
	printf("%zu of %zu checks passed%s\n", passed, passed + notes + json_array_size(missing),
	       all ? "." : " (`-v` lists them).");
}
