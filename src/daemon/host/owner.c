#include "daemon/host/owner.h"

#include <errno.h>
#include <pthread.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "base/clock.h"
#include "daemon/host/bounded_root.h"

#define SUBUID_FILE "/etc/subuid"
/* The file is read again no more often, however many unknown IDs there are. */
#define REFRESH_NS 5000000000ull
/* IDs below are no container's (login.defs: SUB_UID_MIN is 100000). */
#define SUBORDINATE_FIRST 65536u

struct range {
	uint64_t first, count;
	uid_t owner;
};

/* Written by the thread that reads the file, read by the loop. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct range *ranges;
static size_t range_count;

/* The loop's. */
static bool unknown_seen, running;
static uint64_t refreshed_ns;

static bool owner_read(const char *name, uid_t *ret)
{
	struct passwd entry, *found = NULL;
	char buffer[4096], *end;
	unsigned long number = strtoul(name, &end, 10);

	if (*name && !*end) {
		*ret = (uid_t)number;
		return true;
	}
	if (getpwnam_r(name, &entry, buffer, sizeof(buffer), &found) != 0 || !found)
		return false;
	*ret = found->pw_uid;
	return true;
}

/* "NAME:FIRST:COUNT"; other lines are comments. */
static bool range_read(char *line, struct range *ret)
{
	char *rest, *name = strtok_r(line, ":", &rest), *first = strtok_r(NULL, ":", &rest),
		    *count = strtok_r(NULL, ":\n", &rest), *end;

	if (!name || !first || !count || *name == '#')
		return false;
	errno = 0;
	ret->first = strtoull(first, &end, 10);
	if (*end || errno)
		return false;
	ret->count = strtoull(count, &end, 10);
	return !*end && !errno && owner_read(name, &ret->owner);
}

static bool range_add(struct range **list, size_t *count, const struct range *range)
{
	struct range *more = realloc(*list, (*count + 1) * sizeof(*more));

	if (!more)
		return false;
	*list = more;
	more[(*count)++] = *range;
	return true;
}

void owner_load_from(const char *path)
{
	FILE *file = fopen(path, "re");
	struct range *list = NULL, range, *before;
	size_t count = 0, room = 0;
	char *line = NULL;

	while (file && getline(&line, &room, file) >= 0)
		if (range_read(line, &range) && !range_add(&list, &count, &range))
			break;
	free(line);
	if (file)
		fclose(file);
	pthread_mutex_lock(&lock);
	before = ranges;
	ranges = list;
	range_count = count;
	pthread_mutex_unlock(&lock);
	free(before);
}

void owner_load(void)
{
	owner_load_from(SUBUID_FILE);
}

uid_t owner_of(uid_t uid)
{
	uid_t owner = uid;
	bool found = false;

	if (uid < SUBORDINATE_FIRST || uid_is_bounded_root(uid))
		return uid;
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < range_count && !found; i++) {
		found = uid >= ranges[i].first && uid - ranges[i].first < ranges[i].count;
		if (found)
			owner = ranges[i].owner;
	}
	pthread_mutex_unlock(&lock);
	unknown_seen |= !found;
	return owner;
}

static void on_work(uv_work_t *work)
{
	owner_load();
}

static void on_worked(uv_work_t *work, int status)
{
	running = false;
	free(work);
}

void owner_refresh(uv_loop_t *loop)
{
	uint64_t now = unknown_seen && !running ? now_monotonic_ns() : 0;

	if (!now || now - refreshed_ns < REFRESH_NS)
		return;
	uv_work_t *work = calloc(1, sizeof(*work));
	unknown_seen = false;
	refreshed_ns = now;
	running = work && uv_queue_work(loop, work, on_work, on_worked) == 0;
	if (!running)
		free(work);
}
