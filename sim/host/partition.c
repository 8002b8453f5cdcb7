#include "host/partition.h"

#include <errno.h>
#include <mntent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "host/host.h"

/* Room for /proc/PID/cgroup: a line for each hierarchy of cgroup v1, and that of v2. */
#define CGROUP_TEXT_SIZE 16384u

static void root_find(char ret[static WIRE_CGROUP_MAX])
{
	char text[CGROUP_TEXT_SIZE];
	struct mntent entry;
	const char *named = secure_getenv(PARTITION_ENV_ROOT);
	FILE *mounts = named ? NULL : setmntent("/proc/self/mounts", "re");

	snprintf(ret, WIRE_CGROUP_MAX, "%s", named ? named : "");
	while (mounts && !*ret && getmntent_r(mounts, &entry, text, sizeof(text)))
		if (!strcmp(entry.mnt_type, "cgroup2"))
			snprintf(ret, WIRE_CGROUP_MAX, "%s", entry.mnt_dir);
	if (mounts)
		endmntent(mounts);
}

void partitions_init(struct partitions *partitions)
{
	partitions->count = 0;
	root_find(partitions->root);
}

/* Whether `path` is `above` or lies below it. */
static bool is_within(const char *path, const char *above)
{
	size_t length = strlen(above);

	return !strncmp(path, above, length) && (path[length] == '\0' || path[length] == '/');
}

/* 0: there is no such directory in the root of cgroups. */
static uint64_t number_of(const struct host *h, const char *path)
{
	const char *root = h->partitions.root;
	struct stat st;
	bool is_one = *root && is_within(path, root) && !strstr(path, "/../") &&
		      stat(path, &st) == 0 && S_ISDIR(st.st_mode);

	return is_one ? st.st_ino : 0;
}

bool partition_exists(const struct host *h, const char *path)
{
	return number_of(h, path) != 0;
}

bool partition_stands(const struct host *h, const struct partition *partition)
{
	return number_of(h, partition->path) == partition->number;
}

/* The last limit that was set at the path, whose cgroup may be gone. NULL: there was none. */
static const struct partition *last_at(const struct host *h, uint32_t gpu, const char *path)
{
	for (uint32_t i = 0; i < h->partitions.count; i++) {
		const struct partition *p = &h->partitions.list[i];

		if (p->gpu == gpu && !strcmp(p->path, path))
			return p;
	}
	return NULL;
}

const struct partition *partition_find(const struct host *h, uint32_t gpu, const char *path)
{
	const struct partition *last = last_at(h, gpu, path);

	return last && partition_stands(h, last) ? last : NULL;
}

int partition_set(struct host *h, uint32_t gpu, const char *path, uint64_t soft, uint64_t hard)
{
	struct partitions *all = &h->partitions;
	const struct partition *found = last_at(h, gpu, path);
	uint64_t number = number_of(h, path);
	uint32_t at = found ? (uint32_t)(found - all->list) : all->count;

	if (soft > hard)
		return -EINVAL;
	if (!number)
		return -ENOENT;
	if (soft == 0 && hard == UINT64_MAX) {
		if (found && found->number == number)
			all->list[at] = all->list[--all->count];
		return 0;
	}
	if (at == PARTITIONS_MAX)
		return -ENOSPC;
	all->list[at] =
		(struct partition){.gpu = gpu, .soft = soft, .hard = hard, .number = number};
	snprintf(all->list[at].path, sizeof(all->list[at].path), "%s", path);
	all->count += !found;
	return 0;
}

/* Where the process is now. Its memory counts where it was when it last asked for some. */
static void process_look(struct host *h, struct process *p)
{
	char path[64], text[CGROUP_TEXT_SIZE] = "\n";

	snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)p->pid);
	if (!*h->partitions.root || file_read(path, text + 1, sizeof(text) - 1) < 0)
		return;
	char *line = strstr(text, "\n0::/");
	if (!line)
		return;
	line += sizeof("\n0::/") - 1;
	line[strcspn(line, "\n")] = '\0';
	snprintf(p->cgroup, sizeof(p->cgroup), "%.500s%s%.500s", h->partitions.root,
		 *line ? "/" : "", line);
}

static uint64_t process_holds(const struct process *p, uint32_t gpu)
{
	uint64_t bytes = 0;

	list_for_each (node, &p->memory.accounts) {
		const struct book_account *a = list_entry(node, struct book_account, node);

		if (a->space->gpu == gpu)
			bytes += a->bytes - a->kind[WIRE_MEMORY_MANAGED];
	}
	return bytes;
}

uint64_t partition_used(const struct host *h, uint32_t gpu, const char *path)
{
	uint64_t bytes = 0;

	list_for_each (node, &h->processes) {
		const struct process *p = list_entry(node, struct process, node);

		if (is_within(p->cgroup, path))
			bytes += process_holds(p, gpu);
	}
	return bytes;
}

const struct partition *partition_of(struct host *h, struct process *p, uint32_t gpu)
{
	if (!h->partitions.count)
		return NULL;
	process_look(h, p);
	return partition_find(h, gpu, p->cgroup);
}

bool partition_allows(struct host *h, struct process *p, uint32_t gpu, uint64_t bytes)
{
	process_look(h, p);
	for (uint32_t i = 0; i < h->partitions.count; i++) {
		const struct partition *limit = &h->partitions.list[i];

		if (limit->gpu != gpu || !is_within(p->cgroup, limit->path) ||
		    !partition_stands(h, limit))
			continue;
		uint64_t used = partition_used(h, gpu, limit->path);

		if (used > limit->hard || bytes > limit->hard - used)
			return false;
	}
	return true;
}
