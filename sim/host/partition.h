/* Memory limits of cgroups, as drivers from 615 on have them. A cgroup is named by the full path of
 * its directory. A limit binds all processes in the cgroup and below it; who is where the kernel
 * says (/proc/PID/cgroup). It goes with its cgroup: one that is made anew at the same path has
 * none. Managed memory does not count. One thread. Sizes in bytes. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "host/wire.h"

#define PARTITIONS_MAX 256u
/* Names a directory that stands for the root of cgroup v2; else it is where that is mounted. */
#define PARTITION_ENV_ROOT "SIMGPU_CGROUP_ROOT"

struct host;
struct process;

struct partition {
	uint32_t gpu;
	uint64_t soft, hard;
	uint64_t number; /* the kernel's for the cgroup that was given the limit */
	char path[WIRE_CGROUP_MAX];
};

struct partitions {
	struct partition list[PARTITIONS_MAX];
	uint32_t count;
	char root[WIRE_CGROUP_MAX]; /* "": this machine has no cgroup v2 */
};

void partitions_init(struct partitions *partitions);
/* soft 0 and hard UINT64_MAX take the limit away. 0; -ENOENT: no such cgroup; -EINVAL; -ENOSPC. */
int partition_set(struct host *h, uint32_t gpu, const char *path, uint64_t soft, uint64_t hard);
/* NULL: this cgroup has no limit of its own on that GPU. */
const struct partition *partition_find(const struct host *h, uint32_t gpu, const char *path);
/* Whether its directory is there, in the root of cgroups. */
bool partition_exists(const struct host *h, const char *path);
/* Whether the cgroup that was given the limit is there still. */
bool partition_stands(const struct host *h, const struct partition *partition);
/* The bytes that count of the processes in a cgroup and below it. */
uint64_t partition_used(const struct host *h, uint32_t gpu, const char *path);
/* The limit that the process's own cgroup carries; NULL: none. */
const struct partition *partition_of(struct host *h, struct process *p, uint32_t gpu);
/* Whether no limit forbids the process so much more. */
bool partition_allows(struct host *h, struct process *p, uint32_t gpu, uint64_t bytes);
