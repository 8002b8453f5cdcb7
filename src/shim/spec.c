#include "shim/spec.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "container/container_args.h"
#include "proto/shim.h"
#include "proto/shim_sweep.h"
#include "shim/record.h"

/* The time for which the directory of logs is waited for (10 s), if somebody removed it. */
#define LOG_PATIENCE_NS 10000000000ull
#define LOG_EVERY_MS 50

// NOLINTBEGIN(concurrency-mt-unsafe): a job's environment is set in a child of one thread.

/* The variables of the daemon's environment that a job needs to find this host's driver, where its
 * own has none.
 */
static const char *const kept[] = {"LD_LIBRARY_PATH", "SIMGPU_HOST"};

static int all_read(int fd, void *data, size_t size, off_t at)
{
	ssize_t n = pread(fd, data, size, at);

	return n < 0 ? -errno : (size_t)n == size ? 0 : -EBADMSG;
}

/* The text at `at`, as an object; NULL: it is none. */
static json_t *object_read(int fd, size_t size, size_t at)
{
	cleanup_free char *text = malloc(size + 1);
	json_t *object = NULL;

	if (text && all_read(fd, text, size, (off_t)at) == 0)
		object = json_loadb(text, size, 0, NULL);
	if (json_is_object(object))
		return object;
	json_decref(object);
	// NOLINTNEXTLINE(clang-analyzer-unix.Malloc): freed by its cleanup
	return NULL;
}

/* The amount that a pod asks for, as carve-kubernetes takes it. */
static void size_add(json_t *pod, const struct shim_run *run)
{
	char number[48];
	size_t length;

	switch ((enum shim_unit)run->pod_unit) {
	case SHIM_UNIT_NONE:
		break;
	case SHIM_UNIT_MIB:
		snprintf(number, sizeof(number), "%" PRIu64, run->pod_size);
		json_object_set_new(pod, "gpu_memory", json_string(number));
		break;
	case SHIM_UNIT_GPUS:
		snprintf(number, sizeof(number), "%" PRIu64, run->pod_size);
		json_object_set_new(pod, "fraction", json_string(number));
		break;
	case SHIM_UNIT_MILLIONTHS:
		length = (size_t)snprintf(number, sizeof(number), "%" PRIu64 ".%06" PRIu64,
					  run->pod_size / 1000000, run->pod_size % 1000000);
		while (number[length - 1] == '0')
			number[--length] = '\0';
		if (number[length - 1] == '.')
			number[--length] = '\0';
		json_object_set_new(pod, "fraction", json_string(number));
		break;
	}
}

/* The pod has the owner's words on the cluster, and the numbers that tell one job's pod from
 * another's. Pods of the owner's that are no jobs have other names. */
static json_t *pod_make(const json_t *owners, const struct shim_run *run)
{
	static const char *const fixed[] = {"namespace", "api", "token_file", "ca_file"};
	const json_t *pods = json_object_get(owners, "pods");
	json_t *template = json_object_get(pods, "template"), *pod = json_object();
	json_t *of_queue = json_object_get(json_object_get(template, "queues"), run->queue);
	char name[128];

	for (size_t i = 0; i < ARRAY_SIZE(fixed); i++)
		json_object_set(pod, fixed[i], json_object_get(pods, fixed[i]));
	size_add(pod, run);
	json_object_set_new(pod, "grace_s", json_integer(run->pod_grace_s));
	of_queue = json_object_get(of_queue, "pod");
	json_object_set(pod, "template", of_queue ? of_queue : json_object_get(template, "pod"));
	snprintf(name, sizeof(name), SHIM_POD_NAME, run->job, run->pod_key, run->attempt);
	json_object_set_new(pod, "name", json_string(name));
	return pod;
}

/* The image that the agent's owner named for the queue, where the job's user named none. The root
 * keeps it. */
static void image_default(struct shim_spec *spec, const json_t *owners)
{
	json_t *image = json_object_get(json_object_get(owners, "images"), spec->run.queue);

	if (!image)
		image = json_object_get(owners, "image");
	if (!json_string_length(image) || *spec->text.image)
		return;
	json_object_set(spec->root, "image", image);
	spec->text.image = json_string_value(image);
}

static int texts_read(int fd, const struct shim_head *head, struct shim_spec *ret)
{
	json_t *root = object_read(fd, head->text_size, sizeof(*head));
	json_t *owners = head->owner_size ? object_read(fd, head->owner_size,
							sizeof(*head) + head->text_size)
					  : NULL;

	if (!root || (head->owner_size && !owners)) {
		json_decref(root);
		json_decref(owners);
		return -EBADMSG;
	}
	struct error ignored;
	int rc = job_text_read(root, &ret->text, &ignored);
	ret->root = root;
	image_default(ret, owners);
	if (ret->text.params)
		ret->params = shim_sweep_choose(ret->text.params, ret->run.index);
	if (head->kind == SHIM_TASK_POD)
		ret->pod = pod_make(owners, &ret->run);
	json_decref(owners);
	return rc < 0 ? -EBADMSG : 0;
}

/* As job.h has IDs: NUMBER, or ARRAY_INDEX. */
static void id_text(const struct shim_run *run, char ret[static SHIM_ID_TEXT])
{
	if (run->array)
		snprintf(ret, SHIM_ID_TEXT, "%" PRIu64 "_%" PRId64, run->array, run->index);
	else
		snprintf(ret, SHIM_ID_TEXT, "%" PRIu64, run->job);
}

int shim_spec_read(int fd, const char *attach, struct shim_spec *ret)
{
	struct shim_head head;
	struct stat st;

	if (fstat(fd, &st) < 0 || all_read(fd, &head, sizeof(head), 0) < 0 ||
	    shim_head_check(&head, (size_t)st.st_size) < 0)
		return -EBADMSG;
	*ret = (struct shim_spec){
		.run = head.run, .asks = head.warrant.magic == WARRANT_MAGIC, .attach = attach};
	int rc = texts_read(fd, &head, ret);
	if (rc < 0)
		return rc;
	job_text_name(&ret->text, ret->name);
	id_text(&ret->run, ret->job);
	return ret->text.argv ? 0 : -EINVAL;
}

/* ---- the job's environment --------------------------------------------------------------- */

static void environment_enter(const struct shim_spec *spec)
{
	char *of_daemon[ARRAY_SIZE(kept)], number[32];
	const char *key;
	size_t i;
	json_t *value;

	for (i = 0; i < ARRAY_SIZE(kept); i++) {
		const char *now = secure_getenv(kept[i]);

		of_daemon[i] = now ? strdup(now) : NULL;
	}
	clearenv();
	json_array_foreach((json_t *)spec->text.env, i, value)
	{
		const char *entry = json_string_value(value);

		/* putenv() keeps the text, which the object owns. */
		if (entry && strchr(entry, '=') && *entry != '=')
			putenv((char *)entry);
	}
	for (i = 0; i < ARRAY_SIZE(kept); i++)
		if (of_daemon[i])
			setenv(kept[i], of_daemon[i], 0);
	// NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the environment keeps them
	json_object_foreach(spec->params, key, value)
		setenv(key, json_string_value(value) ? json_string_value(value) : "", 1);
	setenv("CARVE_JOB_ID", spec->job, 1);
	setenv("CARVE_JOB_NAME", spec->name, 1);
	setenv("CARVE_JOB_QUEUE", spec->run.queue, 1);
	snprintf(number, sizeof(number), "%" PRIu32, spec->run.attempt);
	setenv("CARVE_JOB_ATTEMPT", number, 1);
	snprintf(number, sizeof(number), "%" PRId64, spec->run.index);
	if (spec->run.index >= 0)
		setenv("CARVE_JOB_INDEX", number, 1);
}

static void limits_enter(const struct shim_spec *spec)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)spec->text.limits, key, value)
	{
		struct rlimit limit;
		int which = (int)strtol(key, NULL, 10);

		if (!json_is_integer(value) || getrlimit((__rlimit_resource_t)which, &limit) < 0)
			continue;
		rlim_t wanted = json_integer_value(value) < 0 ? RLIM_INFINITY
							      : (rlim_t)json_integer_value(value);
		limit.rlim_cur = MIN(wanted, limit.rlim_max);
		(void)setrlimit((__rlimit_resource_t)which, &limit);
	}
}

int shim_spec_enter(const struct shim_spec *spec, const char **ret_what)
{
	environment_enter(spec);
	limits_enter(spec);
	if (spec->text.umask != -1)
		umask((mode_t)spec->text.umask & 0777);
	*ret_what = spec->text.cwd;
	return *spec->text.cwd && chdir(spec->text.cwd) < 0 ? -errno : 0;
}

/* ---- output ------------------------------------------------------------------------------ */

/* Appends to path what %c means. False: no room. */
static bool path_add(char path[static PATH_MAX], const char *text)
{
	size_t used = strlen(path);

	return snprintf(path + used, PATH_MAX - used, "%s", text) < (int)(PATH_MAX - used);
}

static bool path_expand(const struct shim_spec *spec, const char *pattern,
			char path[static PATH_MAX])
{
	char one[2] = "", number[32] = "";
	size_t base = strcspn(spec->job, "_");
	bool fits = true;
	char job[64];

	path[0] = '\0';
	snprintf(job, sizeof(job), "%.*s", (int)base, spec->job);
	if (spec->run.index >= 0)
		snprintf(number, sizeof(number), "%" PRId64, spec->run.index);
	for (const char *at = pattern; *at && fits; at++) {
		one[0] = *at;
		if (*at != '%')
			fits = path_add(path, one);
		else if (*++at == 'j')
			fits = path_add(path, job);
		else if (*at == 'a')
			fits = path_add(path, number);
		else if (*at == 'x')
			fits = path_add(path, spec->name);
		else if (*at == '%')
			fits = path_add(path, "%");
		else
			fits = path_add(path, "%") && (at--, true);
	}
	return fits;
}

static int output_open(const struct shim_spec *spec, const char *pattern,
		       char path[static PATH_MAX])
{
	/* A second attempt goes on where the first one ended. A pod that is taken up begins anew
	 * where there is more to print: only carve-kubernetes knows. */
	bool first = spec->run.attempt <= 1 && !spec->pod;
	int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (first ? O_TRUNC : 0);

	if (!path_expand(spec, pattern, path))
		return -ENAMETOOLONG;
	int fd = open(path, flags, 0666);
	return fd < 0 ? -errno : fd;
}

/* Its directory may be removed between the job's start and this: a daemon that lives makes the one
 * above anew, each second. */
static int log_open(struct record_place *place, char path[static PATH_MAX])
{
	uint64_t end = now_monotonic_ns() + LOG_PATIENCE_NS;

	snprintf(path, PATH_MAX, "%s/%s" SHIM_LOG, place->dir, place->name);
	for (;;) {
		int fd = record_file_open(place, SHIM_LOG, 0644);

		/* The daemon shows it to its user (GET /v1/jobs/log). The directory is closed to
		 * all others, so the job's own umask is not for this file. */
		if (fd >= 0)
			(void)fchmod(fd, 0644);
		if (fd != -ENOENT || now_monotonic_ns() >= end)
			return fd;
		if (record_directory_renew(place) < 0)
			(void)poll(NULL, 0, LOG_EVERY_MS);
	}
}

/* Where the output is, for `carve job logs` and `carve enqueue --wait`: beside the log. */
static void output_link(const struct record_place *place, const char *path, const char *suffix)
{
	char whole[PATH_MAX], name[NAME_MAX];

	record_file_remove(place, suffix);
	if (realpath(path, whole) &&
	    snprintf(name, sizeof(name), "%s%s", place->name, suffix) < (int)sizeof(name))
		(void)!symlinkat(whole, place->dir_fd, name);
}

static bool is_one_file(int a, int b)
{
	struct stat one, other;

	return fstat(a, &one) == 0 && fstat(b, &other) == 0 && one.st_ino == other.st_ino &&
	       one.st_dev == other.st_dev;
}

/* A FIFO is not waited for: without a writer it is empty. */
static int input_at(const char *path)
{
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);

	if (fd >= 0)
		(void)fcntl(fd, F_SETFL, 0);
	return fd < 0 ? -errno : fd;
}

static int input_open(const struct shim_spec *spec, char path[static PATH_MAX])
{
	const char *in = spec->text.in, *wait_in = spec->text.wait_in;

	if (*in)
		return path_expand(spec, in, path) ? input_at(path) : -ENAMETOOLONG;
	int fd = *wait_in ? input_at(wait_in) : -1;
	snprintf(path, PATH_MAX, "/dev/null");
	return fd < 0 ? input_at(path) : fd;
}

bool shim_spec_reads(const struct shim_spec *spec)
{
	return *spec->text.in || *spec->text.wait_in;
}

int shim_spec_files(const struct shim_spec *spec, struct record_place *place,
		    char path[static PATH_MAX])
{
	const char *out = spec->text.out, *err = spec->text.err;
	cleanup_close int zero = input_open(spec, path);
	if (zero < 0)
		return zero;
	cleanup_close int one = *out ? output_open(spec, out, path) : log_open(place, path);

	if (one < 0)
		return one;
	if (*out)
		output_link(place, path, SHIM_LOG);
	cleanup_close int two =
		*err ? output_open(spec, err, path) : fcntl(one, F_DUPFD_CLOEXEC, 3);
	if (two < 0)
		return two;
	if (*err && !is_one_file(one, two))
		output_link(place, path, SHIM_ERR);
	if (dup2(zero, 0) < 0 || dup2(one, 1) < 0 || dup2(two, 2) < 0)
		return -errno;
	return 0;
}

/* ---- the command ------------------------------------------------------------------------- */

/* The parameter that {NAME} at `at` stands for; NULL: none. */
static const char *param_at(const struct shim_spec *spec, const char *at, size_t *ret_length)
{
	const char *key;
	json_t *value;

	// NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the environment keeps them
	json_object_foreach(spec->params, key, value)
	{
		size_t length = strlen(key);

		if (!strncmp(at + 1, key, length) && at[length + 1] == '}') {
			*ret_length = length + 2;
			return json_string_value(value);
		}
	}
	return NULL;
}

static char *word_expand(const struct shim_spec *spec, const char *word)
{
	char *text = NULL;
	size_t size = 0, length = 0;
	FILE *to = open_memstream(&text, &size);

	if (!to)
		return NULL;
	for (const char *at = word; *at; at++) {
		/* ${NAME} is a shell's: the variable has the same value. */
		bool is_shells = at > word && at[-1] == '$';
		const char *value = *at == '{' && !is_shells ? param_at(spec, at, &length) : NULL;

		if (value) {
			fputs(value, to);
			at += length - 1;
		} else {
			fputc(*at, to);
		}
	}
	return fclose(to) == 0 ? text : NULL;
}

char **shim_spec_argv(const struct shim_spec *spec)
{
	const json_t *words = spec->text.argv;
	size_t count = json_array_size(words), i;
	char **argv = calloc(count + 1, sizeof(*argv));
	json_t *word;

	json_array_foreach(words, i, word)
	{
		const char *text = json_string_value(word);

		if (!argv || !(argv[i] = word_expand(spec, text ? text : "")))
			// NOLINTNEXTLINE(clang-analyzer-unix.Malloc): its caller ends
			return NULL;
	}
	return argv;
}

// NOLINTEND(concurrency-mt-unsafe)

void shim_spec_environment(struct words *words, const struct shim_spec *spec)
{
	static const char *const names[] = {"CARVE_JOB_ID", "CARVE_JOB_NAME", "CARVE_JOB_QUEUE",
					    "CARVE_JOB_ATTEMPT", "CARVE_JOB_INDEX"};
	const char *key;
	json_t *value;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (secure_getenv(names[i]))
			words_add(words, "--env=%s=%s", names[i], secure_getenv(names[i]));
	json_object_foreach(spec->params, key, value)
		words_add(words, "--env=%s=%s", key, json_string_value(value));
}
