#include "cli/container/container_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "base/trust.h"
#include "cli/container/container_watch.h"

/* Its contents outlive a boot, as containers do. */
#define PLACE "/var/tmp"
#define PREFIX "carve-container-"
#define NOTE "kept"
#define NOTE_MAX 8192
#define LIST_MAX (1u << 20)

int container_dir_make(char dir[static PATH_MAX], struct error *err)
{
	snprintf(dir, PATH_MAX, PLACE "/" PREFIX "XXXXXX");
	/* A runtime reaches its files as a user of the container's. A user who could open it could
	 * lock it, too, and it would never be collected. */
	if (mkdtemp(dir) && chmod(dir, 0711) == 0)
		return 0;
	error_set(err, EXIT_CODE_RUN_FAILED, "cannot make %s: %s", dir, strerrordesc_np(errno));
	*dir = '\0';
	return -EXIT_CODE_RUN_FAILED;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
	return remove(path);
}

void container_dir_remove(const char *dir)
{
	(void)nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* Which containers a runtime's list has: of its storage or its daemon. */
static void runtime_text(const struct runtime *runtime, char *buf, size_t size)
{
	static const char *const names[] = {
		"DOCKER_HOST",     "DOCKER_CONTEXT",          "DOCKER_CONFIG",   "CONTAINER_HOST",
		"CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "XDG_RUNTIME_DIR", "HOME"};
	size_t used = (size_t)snprintf(buf, size, "%s\n", runtime->program);

	for (char *const *option = runtime->options; option && *option && used < size; option++)
		used += (size_t)snprintf(buf + used, size - used, "%s\n", *option);

	for (size_t i = 0; i < ARRAY_SIZE(names) && used < size; i++) {
		const char *value = secure_getenv(names[i]);

		used += (size_t)snprintf(buf + used, size - used, "%s=%s\n", names[i],
					 value ? value : "");
	}
}

void container_dir_keep(const char *dir, const struct runtime *runtime, const char *cid)
{
	char path[PATH_MAX], text[NOTE_MAX], own[NOTE_MAX];

	runtime_text(runtime, own, sizeof(own));
	int length = snprintf(text, sizeof(text), "%.80s\n%s", cid, own);
	snprintf(path, sizeof(path), "%.4000s/" NOTE, dir);
	cleanup_close int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (fd >= 0 && length < (int)sizeof(text))
		(void)write_all(fd, text, (size_t)length);
}

void container_dir_hold(const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	/* The descriptor stays open: the lock ends with its last process, however that ends. */
	if (fd >= 0)
		(void)flock(fd, LOCK_EX | LOCK_NB);
}

static bool is_held(const char *dir)
{
	cleanup_close int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	return fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0;
}

/* The container that a directory was kept for. False: it is not this user's, or not this runtime's,
 * or in use by a container that another command of carve's watches. */
static bool note_read(const char *dir, const char *own, char cid[static 81])
{
	char path[PATH_MAX], text[NOTE_MAX];
	struct stat st;

	snprintf(path, sizeof(path), "%.4000s/" NOTE, dir);
	if (lstat(dir, &st) < 0 || !S_ISDIR(st.st_mode) || !trust_uid_is_own(st.st_uid) ||
	    file_read(path, text, sizeof(text)) < 0 || is_held(dir))
		return false;
	size_t length = strcspn(text, "\n");
	if (length < 12 || length > 80 || text[length] != '\n' ||
	    strcmp(text + length + 1, own) != 0)
		return false;
	snprintf(cid, 81, "%.*s", (int)length, text);
	return true;
}

/* The runtime's list is asked for once, and only where something was kept. False: it has none. */
static bool list_ask(const struct runtime *runtime, char **list)
{
	const char *const ps[] = {"ps", "--all", "--quiet", "--no-trunc", NULL};

	if (*list)
		return true;
	*list = malloc(LIST_MAX);
	return *list && runtime_ask_all(runtime, *list, LIST_MAX, ps) &&
	       strlen(*list) < LIST_MAX - 1;
}

void container_dirs_collect(const struct runtime *runtime)
{
	char own[NOTE_MAX], path[PATH_MAX], cid[81];
	cleanup_free char *list = NULL;
	DIR *stream = opendir(PLACE);

	runtime_text(runtime, own, sizeof(own));
	// NOLINTNEXTLINE(concurrency-mt-unsafe): glibc's is safe for a stream of one's own
	for (struct dirent *entry; stream && (entry = readdir(stream));) {
		if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) != 0)
			continue;
		snprintf(path, sizeof(path), PLACE "/%s", entry->d_name);
		if (!note_read(path, own, cid))
			continue;
		if (!list_ask(runtime, &list))
			break;
		if (!strstr(list, cid))
			container_dir_remove(path);
	}
	if (stream)
		closedir(stream);
}
