#include "backend/gpus.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/gpus_private.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "base/nvml_functions.h"

/* The list of graphics processes is empty on most hosts. A driver may take milliseconds to make it,
 * and programs' own calls wait meanwhile. So an empty list is read again after this many times its
 * own reading time, and after 1 s at most. */
#define GRAPHICS_TIMES 100
#define GRAPHICS_MOST_NS 1000000000ull
/* Looking again costs little below this, and is worth it below that for those who need it. */
#define CHEAP_NS 1000000ull
#define WORTH_NS 50000000ull
/* This many readings that agree are believed, if nothing moved from the first one on. */
#define READINGS_SURE 5
/* Where figures move, the value so far is kept if seven of eight readings allow it. */
#define READINGS_STILL 8
/* The pause between the figures of another reading. It keeps readings out of step with a program
 * that takes and gives memory in turn. In step they would be the same before and after, and wrong.
 */
#define STEP_NS 300000u

struct graphics {
	bool empty; /* when it was read last */
	uint64_t read_ns, took_ns;
};

struct gpus {
	void *library;
	struct graphics graphics[GPUS_MAX];
	char driver_version[NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE];
	__typeof__(nvmlInit_v2) *init;
	__typeof__(nvmlShutdown) *shutdown;
	pthread_rwlock_t open; /* to write: while somebody else needs it closed */
	__typeof__(nvmlErrorString) *error_string;
	__typeof__(nvmlSystemGetDriverVersion) *get_driver_version;
	__typeof__(nvmlDeviceGetCount_v2) *get_count;
	__typeof__(nvmlDeviceGetHandleByIndex_v2) *get_handle;
	__typeof__(nvmlDeviceGetName) *get_name;
	__typeof__(nvmlDeviceGetUUID) *get_uuid;
	__typeof__(nvmlDeviceGetPciInfo_v3) *get_pci_info;
	__typeof__(nvmlDeviceGetMinorNumber) *get_minor;
	__typeof__(nvmlDeviceGetMemoryInfo) *get_memory;
	/* May be missing from older drivers. */
	__typeof__(nvmlDeviceGetMemoryInfo_v2) *get_memory_v2;
	__typeof__(nvmlDeviceGetMigMode) *get_mig_mode;
	__typeof__(nvmlDeviceGetMaxMigDeviceCount) *get_mig_max;
	__typeof__(nvmlDeviceGetMigDeviceHandleByIndex) *get_mig_device;
	__typeof__(nvmlDeviceGetUtilizationRates) *get_utilization;
	__typeof__(nvmlDeviceGetProcessUtilization) *get_process_utilization;
	__typeof__(nvmlDeviceGetComputeMode) *get_compute_mode;
	/* Newest first; the first that the driver has is used. v1 has the smaller entry. */
	__typeof__(nvmlDeviceGetComputeRunningProcesses_v3) *get_compute, *get_graphics;
	__typeof__(nvmlDeviceGetComputeRunningProcesses) *get_compute_v1, *get_graphics_v1;
	/* The simulated driver's alone. */
	unsigned long long (*clock_lag)(unsigned int index, unsigned long long now_ns);
};

struct symbol {
	const char *name;
	size_t offset;
	bool required;
};

#define SYMBOL(name, member, required)                         \
	{                                                      \
#name, offsetof(struct gpus, member), required \
	}
/* A member named twice takes the first symbol that exists. */
static const struct symbol symbols[] = {
	SYMBOL(nvmlInit_v2, init, true),
	SYMBOL(nvmlShutdown, shutdown, true),
	SYMBOL(nvmlErrorString, error_string, true),
	SYMBOL(nvmlSystemGetDriverVersion, get_driver_version, true),
	SYMBOL(nvmlDeviceGetCount_v2, get_count, true),
	SYMBOL(nvmlDeviceGetHandleByIndex_v2, get_handle, true),
	SYMBOL(nvmlDeviceGetName, get_name, true),
	SYMBOL(nvmlDeviceGetUUID, get_uuid, true),
	SYMBOL(nvmlDeviceGetPciInfo_v3, get_pci_info, true),
	SYMBOL(nvmlDeviceGetMinorNumber, get_minor, false),
	SYMBOL(nvmlDeviceGetMemoryInfo, get_memory, true),
	SYMBOL(nvmlDeviceGetMemoryInfo_v2, get_memory_v2, false),
	SYMBOL(nvmlDeviceGetMigMode, get_mig_mode, false),
	SYMBOL(nvmlDeviceGetMaxMigDeviceCount, get_mig_max, false),
	SYMBOL(nvmlDeviceGetMigDeviceHandleByIndex, get_mig_device, false),
	SYMBOL(nvmlDeviceGetUtilizationRates, get_utilization, false),
	SYMBOL(nvmlDeviceGetProcessUtilization, get_process_utilization, false),
	SYMBOL(nvmlDeviceGetComputeMode, get_compute_mode, false),
	SYMBOL(nvmlDeviceGetComputeRunningProcesses_v3, get_compute, false),
	SYMBOL(nvmlDeviceGetComputeRunningProcesses_v2, get_compute, false),
	SYMBOL(nvmlDeviceGetGraphicsRunningProcesses_v3, get_graphics, false),
	SYMBOL(nvmlDeviceGetGraphicsRunningProcesses_v2, get_graphics, false),
	SYMBOL(nvmlDeviceGetComputeRunningProcesses, get_compute_v1, false),
	SYMBOL(nvmlDeviceGetGraphicsRunningProcesses, get_graphics_v1, false),
	SYMBOL(simgpuClockLag, clock_lag, false),
};

int gpus_errno(nvmlReturn_t status)
{
	switch (status) {
	case NVML_SUCCESS:
		return 0;
	case NVML_ERROR_DRIVER_NOT_LOADED:
	case NVML_ERROR_LIBRARY_NOT_FOUND:
		return -ENODEV;
	case NVML_ERROR_GPU_IS_LOST:
	case NVML_ERROR_GPU_NOT_FOUND:
		return -ENXIO;
	case NVML_ERROR_NO_PERMISSION:
		return -EACCES;
	case NVML_ERROR_IN_USE:
		return -EBUSY;
	case NVML_ERROR_INSUFFICIENT_RESOURCES:
		return -ENOSPC;
	case NVML_ERROR_RESET_REQUIRED:
		return -EAGAIN;
	case NVML_ERROR_NOT_SUPPORTED:
		return -ENOTSUP;
	case NVML_ERROR_NOT_FOUND:
		return -ENOENT;
	case NVML_ERROR_TIMEOUT:
		return -ETIMEDOUT;
	default:
		return -EIO;
	}
}

static int symbols_load(struct gpus *gpus, struct error *err)
{
	for (size_t i = 0; i < ARRAY_SIZE(symbols); i++) {
		void **slot = (void **)((char *)gpus + symbols[i].offset);

		if (!*slot)
			*slot = dlsym(gpus->library, symbols[i].name);
		if (!*slot && symbols[i].required) {
			error_set(err, EXIT_CODE_FAILED,
				  "the driver's libnvidia-ml.so.1 has no %s: it is too old",
				  symbols[i].name);
			return -ENODEV;
		}
	}
	return 0;
}

static int library_start(struct gpus *gpus, struct error *err)
{
	int rc = symbols_load(gpus, err);

	if (rc < 0)
		return rc;
	nvmlReturn_t status = gpus->init();
	if (status != NVML_SUCCESS) {
		error_set(err, EXIT_CODE_FAILED, "the driver does not start: %s",
			  gpus->error_string(status));
		return gpus_errno(status);
	}
	if (gpus->get_driver_version(gpus->driver_version, sizeof(gpus->driver_version)))
		gpus->driver_version[0] = '\0';
	return 0;
}

int gpus_open(struct gpus **ret, struct error *err)
{
	struct gpus *gpus = calloc(1, sizeof(*gpus));

	if (!gpus)
		return -ENOMEM;
	pthread_rwlock_init(&gpus->open, NULL);
	gpus->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	int rc = -ENODEV;
	if (gpus->library)
		rc = library_start(gpus, err);
	else
		error_set(err, EXIT_CODE_FAILED,
			  "no NVIDIA driver: libnvidia-ml.so.1 is not found");
	if (rc < 0) {
		if (gpus->library)
			dlclose(gpus->library);
		free(gpus);
		return rc;
	}
	*ret = gpus;
	return 0;
}

void gpus_close(struct gpus *gpus)
{
	if (!gpus)
		return;
	gpus->shutdown();
	pthread_rwlock_destroy(&gpus->open);
	dlclose(gpus->library);
	free(gpus);
}

void gpus_let_go(struct gpus *gpus)
{
	pthread_rwlock_wrlock(&gpus->open);
	gpus->shutdown();
}

void gpus_take_up(struct gpus *gpus)
{
	/* Where it does not start again samples fail, as with any driver that went away. */
	(void)gpus->init();
	pthread_rwlock_unlock(&gpus->open);
}

bool gpus_are_simulated(const struct gpus *gpus)
{
	return gpus->clock_lag != NULL;
}

uint64_t gpus_clock_lag(const struct gpus *gpus, uint32_t index, uint64_t now_ns)
{
	return gpus->clock_lag ? gpus->clock_lag(index, now_ns) : 0;
}

void *gpus_function(const struct gpus *gpus, const char *name)
{
	return dlsym(gpus->library, name);
}

int gpus_device(const struct gpus *gpus, uint32_t index, nvmlDevice_t *ret)
{
	return gpus_errno(gpus->get_handle(index, ret));
}

const char *gpus_driver_version(const struct gpus *gpus)
{
	return gpus->driver_version;
}

int gpu_uuid_parse(const char *text, uint8_t ret[static LEDGER_UUID_SIZE])
{
	uint8_t uuid[LEDGER_UUID_SIZE];
	const char *from = strchr(text, '-');

	for (unsigned i = 0; from && i < LEDGER_UUID_SIZE; i++) {
		char pair[3] = {0}, *end;

		from += *from == '-';
		memcpy(pair, from, strnlen(from, 2));
		uuid[i] = (uint8_t)strtoul(pair, &end, 16);
		if (end != pair + 2)
			return -EINVAL;
		from += 2;
	}
	if (!from || *from)
		return -EINVAL;
	memcpy(ret, uuid, sizeof(uuid));
	return 0;
}

static int memory_read(const struct gpus *gpus, nvmlDevice_t device, uint64_t *total,
		       uint64_t *reserved, uint64_t *used)
{
	nvmlMemory_v2_t v2 = {.version = NVML_MEMORY_V2};
	nvmlMemory_t v1;

	if (gpus->get_memory_v2 && gpus->get_memory_v2(device, &v2) == NVML_SUCCESS) {
		*total = v2.total;
		*reserved = v2.reserved;
		*used = v2.used;
		return 0;
	}
	nvmlReturn_t status = gpus->get_memory(device, &v1);
	if (status != NVML_SUCCESS)
		return gpus_errno(status);
	/* Here what is reserved is part of what is used, and counts as held by others. */
	*total = v1.total;
	*reserved = 0;
	*used = v1.used;
	return 0;
}

/* 1: on; 0: off, or the GPU has none; -1: not known. A mode that is pending begins with a reset. */
struct mig_mode {
	int now; /* 1: on, 0: off, -1: not known */
	bool capable, pending;
};

static struct mig_mode mig_read(const struct gpus *gpus, nvmlDevice_t device)
{
	unsigned current, pending;
	nvmlReturn_t status = gpus->get_mig_mode ? gpus->get_mig_mode(device, &current, &pending)
						 : NVML_ERROR_NOT_SUPPORTED;

	if (status != NVML_SUCCESS)
		return (struct mig_mode){.now = status == NVML_ERROR_NOT_SUPPORTED ? 0 : -1};
	return (struct mig_mode){.now = current == NVML_FEATURE_ENABLED,
				 .capable = true,
				 .pending = pending == NVML_FEATURE_ENABLED};
}

static int info_read(const struct gpus *gpus, uint32_t index, struct gpu_info *info)
{
	nvmlDevice_t device;
	nvmlPciInfo_t pci;
	uint64_t used;
	unsigned minor;
	nvmlReturn_t status = gpus->get_handle(index, &device);

	if (status == NVML_SUCCESS)
		status = gpus->get_uuid(device, info->uuid_text, sizeof(info->uuid_text));
	if (status == NVML_SUCCESS)
		status = gpus->get_name(device, info->name, sizeof(info->name));
	if (status == NVML_SUCCESS)
		status = gpus->get_pci_info(device, &pci);
	if (status != NVML_SUCCESS)
		return gpus_errno(status);
	info->index = index;
	info->minor = gpus->get_minor && gpus->get_minor(device, &minor) == NVML_SUCCESS
			      ? (int)minor
			      : -1;
	struct mig_mode mode = mig_read(gpus, device);
	info->mig = mode.now > 0;
	info->mig_capable = mode.capable;
	snprintf(info->pci_bus_id, sizeof(info->pci_bus_id), "%s", pci.busId);
	int rc = gpu_uuid_parse(info->uuid_text, info->uuid);
	if (rc < 0)
		return rc;
	rc = memory_read(gpus, device, &info->total, &info->reserved, &used);
	/* The driver tells root alone of a GPU in MIG mode, and nobody of one without figures. */
	return info->mig || rc == -ENOTSUP ? 0 : rc;
}

void gpus_info(struct gpus *gpus, uint32_t index, struct gpu_info *ret)
{
	struct gpu_info info = {0};

	pthread_rwlock_rdlock(&gpus->open);
	int rc = info_read(gpus, index, &info);
	pthread_rwlock_unlock(&gpus->open);
	*ret = rc < 0 ? (struct gpu_info){.index = index, .unread = rc, .minor = -1} : info;
}

int gpus_list(struct gpus *gpus, struct gpu_info *list, size_t max, size_t *ret_count)
{
	unsigned total = 0;
	size_t count = 0;
	nvmlReturn_t status = gpus->get_count(&total);

	if (status != NVML_SUCCESS)
		return gpus_errno(status);
	for (unsigned index = 0; index < total && count < max; index++)
		gpus_info(gpus, index, &list[count++]);
	*ret_count = count;
	return 0;
}

/* The driver's figure may be "not available". */
static uint64_t known_bytes(unsigned long long bytes)
{
	return bytes == (unsigned long long)NVML_VALUE_NOT_AVAILABLE ? 0 : bytes;
}

static void process_add(struct gpu_sample *sample, pid_t pid, uint64_t bytes)
{
	/* A process that computes and draws is in both lists, with the same figure. */
	for (size_t i = 0; i < sample->process_count; i++)
		if (sample->processes[i].pid == pid) {
			sample->processes[i].bytes = MAX(sample->processes[i].bytes, bytes);
			return;
		}
	sample->processes[sample->process_count++] =
		(struct gpu_process){.pid = pid, .bytes = bytes};
}

/* On a GPU in MIG mode a process has an entry for each instance that it uses. 0: it was counted
 * with an entry before this one. */
static uint64_t bytes_of_process(const nvmlProcessInfo_v2_t *list, unsigned count, unsigned at)
{
	uint64_t bytes = known_bytes(list[at].usedGpuMemory);

	if (list[at].gpuInstanceId == NVML_NO_INSTANCE)
		return bytes;
	for (unsigned i = 0; i < count; i++) {
		if (i == at || list[i].pid != list[at].pid)
			continue;
		if (i < at)
			return 0;
		bytes += known_bytes(list[i].usedGpuMemory);
	}
	return bytes;
}

struct process_list {
	nvmlProcessInfo_v2_t *v2; /* or v1: one array; owned */
	nvmlProcessInfo_v1_t *v1;
	unsigned count;
};

/* By the newest of the two calls that this driver has. Anybody may have many small processes on a
 * GPU: a list that is longer than usual is no failure of the driver's. -ENOTSUP: it has neither. */
static int list_get(__typeof__(nvmlDeviceGetComputeRunningProcesses_v3) *get,
		    __typeof__(nvmlDeviceGetComputeRunningProcesses) *get_v1, nvmlDevice_t device,
		    struct process_list *ret)
{
	nvmlReturn_t status = NVML_ERROR_INSUFFICIENT_SIZE;

	for (unsigned room = GPU_PROCESSES_MAX;
	     room <= GPU_PROCESSES_MOST && status == NVML_ERROR_INSUFFICIENT_SIZE; room *= 4) {
		size_t size = get ? sizeof(*ret->v2) : sizeof(*ret->v1);
		void *list = malloc(room * size);

		if (!list)
			return -ENOMEM;
		*ret = (struct process_list){get ? list : NULL, get ? NULL : list, room};
		status = get      ? get(device, &ret->count, list)
			 : get_v1 ? get_v1(device, &ret->count, list)
				  : NVML_ERROR_NOT_SUPPORTED;
		ret->count = MIN(ret->count, room);
		if (status != NVML_SUCCESS)
			free(list);
	}
	return status == NVML_ERROR_NOT_SUPPORTED ? -ENOTSUP : gpus_errno(status);
}

/* Where the driver has no such list there are none. */
static int processes_add(__typeof__(nvmlDeviceGetComputeRunningProcesses_v3) *get,
			 __typeof__(nvmlDeviceGetComputeRunningProcesses) *get_v1,
			 nvmlDevice_t device, struct gpu_sample *sample)
{
	struct process_list list;
	int rc = list_get(get, get_v1, device, &list);

	if (rc < 0)
		return rc == -ENOTSUP ? 0 : rc;
	struct gpu_process *all =
		realloc(sample->processes, (sample->process_count + list.count + 1) * sizeof(*all));
	if (all)
		sample->processes = all;
	for (unsigned i = 0; all && i < list.count; i++)
		process_add(sample, (pid_t)(list.v2 ? list.v2[i].pid : list.v1[i].pid),
			    list.v2 ? bytes_of_process(list.v2, list.count, i)
				    : known_bytes(list.v1[i].usedGpuMemory));
	free(list.v2 ? (void *)list.v2 : list.v1);
	return all ? 0 : -ENOMEM;
}

static int graphics_read(struct gpus *gpus, uint32_t index, nvmlDevice_t device,
			 struct gpu_sample *sample)
{
	struct graphics *g = &gpus->graphics[index % GPUS_MAX];
	uint64_t began = now_monotonic_ns();
	size_t count = sample->process_count;

	if (g->empty && began - g->read_ns < MIN(GRAPHICS_TIMES * g->took_ns, GRAPHICS_MOST_NS))
		return 0;
	int rc = processes_add(gpus->get_graphics, gpus->get_graphics_v1, device, sample);
	for (size_t i = count; i < sample->process_count; i++)
		sample->processes[i].graphics = true;
	g->read_ns = now_monotonic_ns();
	g->took_ns = g->read_ns - began;
	g->empty = rc == 0 && sample->process_count == count;
	return rc;
}

/* Those that compute. */
static int compute_read(const struct gpus *gpus, nvmlDevice_t device, struct gpu_sample *sample)
{
	return processes_add(gpus->get_compute, gpus->get_compute_v1, device, sample);
}

static int processes_read(struct gpus *gpus, uint32_t index, nvmlDevice_t device,
			  struct gpu_sample *sample)
{
	int rc = compute_read(gpus, device, sample);

	return rc < 0 ? rc : graphics_read(gpus, index, device, sample);
}

/* ---- the processes in each instance ------------------------------------------------------ */

static int part_read(const struct gpus *gpus, nvmlDevice_t device, struct gpu_sample *sample)
{
	char text[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
	struct gpu_sample in = {0};
	struct gpu_part part;

	if (gpus->get_uuid(device, text, sizeof(text)) != NVML_SUCCESS ||
	    gpu_uuid_parse(text, part.uuid) < 0)
		return -EIO;
	uint64_t before = 0;
	int rc = memory_read(gpus, device, &in.total, &in.reserved, &before);
	if (rc == 0)
		rc = compute_read(gpus, device, &in);
	if (rc == 0)
		rc = memory_read(gpus, device, &in.total, &in.reserved, &in.used);
	struct gpu_part *list =
		rc < 0 ? NULL
		       : realloc(sample->parts,
				 (sample->part_count + in.process_count + 1) * sizeof(*list));
	if (list)
		sample->parts = list;
	else if (rc == 0)
		rc = -ENOMEM;
	for (size_t i = 0; rc == 0 && i < in.process_count; i++) {
		part.pid = in.processes[i].pid;
		part.bytes = in.processes[i].bytes;
		sample->parts[sample->part_count++] = part;
	}
	if (rc == 0) {
		uint64_t listed = gpu_sample_listed(&in);

		part.pid = 0;
		/* Memory that came or went while processes were read is in one of the two. */
		part.bytes = MIN(before, in.used) - MIN(MIN(before, in.used), listed);
		sample->parts[sample->part_count++] = part;
	}
	gpu_sample_clear(&in);
	return rc;
}

/* Devices have indices below the most that there may be, with gaps. */
static bool parts_read(const struct gpus *gpus, nvmlDevice_t device, struct gpu_sample *sample)
{
	unsigned most = 0;

	if (!gpus->get_mig_max || !gpus->get_mig_device ||
	    gpus->get_mig_max(device, &most) != NVML_SUCCESS)
		return false;
	for (unsigned i = 0; i < most; i++) {
		nvmlDevice_t mig;
		nvmlReturn_t status = gpus->get_mig_device(device, i, &mig);

		if (status == NVML_ERROR_NOT_FOUND)
			continue;
		if (status != NVML_SUCCESS || part_read(gpus, mig, sample) < 0)
			return false;
	}
	return true;
}

static int exclusive_read(const struct gpus *gpus, nvmlDevice_t device)
{
	nvmlComputeMode_t mode = NVML_COMPUTEMODE_DEFAULT;

	if (!gpus->get_compute_mode || gpus->get_compute_mode(device, &mode) != NVML_SUCCESS ||
	    mode == NVML_COMPUTEMODE_DEFAULT)
		return GPU_SHARED;
	return mode == NVML_COMPUTEMODE_PROHIBITED ? GPU_PROHIBITED : GPU_EXCLUSIVE;
}

static int utilization_read(const struct gpus *gpus, nvmlDevice_t device)
{
	nvmlUtilization_t rates;

	if (!gpus->get_utilization || gpus->get_utilization(device, &rates) != NVML_SUCCESS)
		return -1;
	return (int)MIN(rates.gpu, 100u);
}

/* ---- the time that processes use --------------------------------------------------------- */

#define PPM_OF_PERCENT 10000u

static void use_add(struct gpu_use *list, size_t max, size_t *count, const struct gpu_use *use)
{
	for (size_t i = 0; i < *count; i++)
		if (list[i].pid == use->pid) {
			list[i].ppm = MAX(list[i].ppm, use->ppm);
			list[i].present |= use->present;
			list[i].works |= use->works;
			return;
		}
	if (*count < max)
		list[(*count)++] = *use;
}

static int use_read(const struct gpus *gpus, nvmlDevice_t device, uint64_t window_ns,
		    struct gpu_use *list, size_t max, size_t *count)
{
	cleanup_free nvmlProcessUtilizationSample_t *samples =
		malloc(GPU_PROCESSES_MAX * sizeof(*samples));
	unsigned long long since = ((unsigned long long)now_realtime_ns() - window_ns) / 1000;
	unsigned found = GPU_PROCESSES_MAX;

	if (!samples)
		return -ENOMEM;
	nvmlReturn_t status = gpus->get_process_utilization(device, samples, &found, since);
	if (status == NVML_ERROR_NOT_FOUND)
		return 0;
	if (status == NVML_ERROR_NOT_SUPPORTED)
		return -ENOTSUP;
	if (status != NVML_SUCCESS)
		return gpus_errno(status);
	for (unsigned i = 0; i < MIN(found, GPU_PROCESSES_MAX); i++)
		use_add(list, max, count,
			&(struct gpu_use){.pid = (pid_t)samples[i].pid,
					  .ppm = MIN(samples[i].smUtil, 100u) * PPM_OF_PERCENT,
					  .works = samples[i].smUtil || samples[i].memUtil ||
						   samples[i].encUtil || samples[i].decUtil});
	return 0;
}

int gpus_use(struct gpus *gpus, uint32_t index, uint64_t window_ns, struct gpu_use *list,
	     size_t max, size_t *ret_count, uint32_t *ret_busy)
{
	struct gpu_sample sample = {0};
	size_t count = 0;
	nvmlDevice_t device;

	if (!gpus->get_process_utilization)
		return -ENOTSUP;
	int rc = gpus_errno(gpus->get_handle(index, &device));
	if (rc == 0)
		rc = use_read(gpus, device, window_ns, list, max, &count);
	if (rc == 0)
		rc = compute_read(gpus, device, &sample);
	for (size_t i = 0; rc == 0 && i < sample.process_count; i++)
		use_add(list, max, &count,
			&(struct gpu_use){.pid = sample.processes[i].pid, .present = true});
	gpu_sample_clear(&sample);
	if (rc < 0)
		return rc;
	int busy = utilization_read(gpus, device);
	*ret_busy = busy < 0 ? GPU_USE_UNKNOWN : (uint32_t)busy * PPM_OF_PERCENT;
	*ret_count = count;
	return 0;
}

uint64_t gpu_sample_listed(const struct gpu_sample *sample)
{
	uint64_t listed = 0;

	for (size_t i = 0; i < sample->process_count; i++)
		listed += sample->processes[i].bytes;
	return listed;
}

static void step_break(bool again)
{
	if (again)
		nanosleep(&(struct timespec){.tv_nsec = (long)(now_monotonic_ns() * 2654435761u %
							       STEP_NS)},
			  NULL);
}

static int reading_take(struct gpus *gpus, uint32_t index, nvmlDevice_t device, bool again,
			struct gpu_sample *sample, struct gpu_reading *ret)
{
	uint64_t before = 0;

	gpu_sample_clear(sample);
	int rc = memory_read(gpus, device, &sample->total, &sample->reserved, &before);
	step_break(again);
	if (rc == 0)
		rc = processes_read(gpus, index, device, sample);
	step_break(again);
	if (rc == 0)
		rc = memory_read(gpus, device, &sample->total, &sample->reserved, &sample->used);
	int64_t listed = (int64_t)gpu_sample_listed(sample);
	ret->least = (int64_t)MIN(before, sample->used) - listed;
	ret->most = (int64_t)MAX(before, sample->used) - listed;
	return rc;
}

static bool is_tight(const struct gpu_reading *r)
{
	return r->least == r->most;
}

static bool agree(const struct gpu_reading *r, unsigned count)
{
	if (count < READINGS_SURE)
		return false;
	for (unsigned i = 0; i < count; i++)
		if (!is_tight(&r[i]) || r[i].least != r[0].least)
			return false;
	return true;
}

static bool is_still(const struct gpu_reading *r, unsigned count, int64_t unlisted)
{
	unsigned allow = 0;

	for (unsigned i = 0; i < count; i++)
		allow += gpu_reading_allows(&r[i], unlisted);
	return count >= READINGS_STILL && allow * READINGS_STILL >= count * (READINGS_STILL - 1);
}

/* Memory that is not carve's is the difference of two figures that the driver gives one after the
 * other: look again while they move. */
static int readings_take(struct gpus *gpus, uint32_t index, nvmlDevice_t device, bool exact,
			 int64_t unlisted, struct gpu_sample *ret)
{
	struct gpu_reading readings[GPU_READINGS_MOST] = {0};
	uint64_t began = now_monotonic_ns();
	unsigned count = 0;
	bool sure = false;
	int rc = reading_take(gpus, index, device, false, ret, &readings[0]);
	uint64_t took = now_monotonic_ns() - began;

	/* The first one may be in step with others: it bears out, and tells nothing new. */
	if (rc < 0 || (is_tight(&readings[0]) && readings[0].least == unlisted))
		return rc;
	uint64_t worth = MAX(WORTH_NS / MAX(took, 1), READINGS_SURE);
	uint64_t most = exact             ? MIN(worth, GPU_READINGS_MOST)
			: took > CHEAP_NS ? 1
					  : MIN(worth, GPU_READINGS_USUAL);
	while (count < most && rc == 0 && !sure && !is_still(readings, count, unlisted)) {
		rc = reading_take(gpus, index, device, true, ret, &readings[count++]);
		sure = agree(readings, count);
	}
	memcpy(ret->readings, readings, sizeof(readings));
	ret->reading_count = count;
	ret->sure = sure;
	return rc;
}

void gpus_sample(struct gpus *gpus, uint32_t index, bool exact, int64_t unlisted, bool parts,
		 struct gpu_sample *ret)
{
	struct gpu_sample sample = {0};
	nvmlDevice_t device;

	pthread_rwlock_rdlock(&gpus->open);
	sample.error = gpus_errno(gpus->get_handle(index, &device));
	struct mig_mode mode = {.now = -1};
	if (!sample.error)
		mode = mig_read(gpus, device);
	if (!sample.error)
		sample.error = readings_take(gpus, index, device, exact, unlisted, &sample);
	if (!sample.error && parts && mode.now > 0)
		sample.parts_known = parts_read(gpus, device, &sample);
	sample.utilization = sample.error ? -1 : utilization_read(gpus, device);
	sample.exclusive = sample.error ? GPU_SHARED : exclusive_read(gpus, device);
	pthread_rwlock_unlock(&gpus->open);
	sample.mig = mode.now;
	sample.mig_capable = mode.capable;
	sample.mig_pending = mode.pending;
	*ret = sample;
}

const char *gpu_sample_error_text(int error)
{
	static const struct {
		int error;
		const char *text;
	} texts[] = {
		{-ENXIO, "it fell off the bus, and the driver cannot reach it"},
		{-EAGAIN, "it needs a reset (nvidia-smi --gpu-reset)"},
		{-ENOTSUP, "NVML gives no memory figures for it (unified memory has none): carve "
			   "cannot make slices of it"},
		{-ETIMEDOUT, "the driver did not answer in time"},
		{-EACCES, "the driver does not let this user read its memory figures"},
		{-ENODEV, "the driver is not loaded"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (texts[i].error == error)
			return texts[i].text;
	return "the driver cannot reach it";
}

void gpu_sample_clear(struct gpu_sample *sample)
{
	free(sample->processes);
	free(sample->parts);
	*sample = (struct gpu_sample){0};
}

uint64_t gpu_sample_process_bytes(const struct gpu_sample *sample, pid_t pid)
{
	for (size_t i = 0; i < sample->process_count; i++)
		if (sample->processes[i].pid == pid)
			return sample->processes[i].bytes;
	return 0;
}

uint64_t gpu_sample_part_bytes(const struct gpu_sample *sample, pid_t pid,
			       const uint8_t uuid[static LEDGER_UUID_SIZE])
{
	for (size_t i = 0; i < sample->part_count; i++)
		if (sample->parts[i].pid == pid &&
		    memcmp(sample->parts[i].uuid, uuid, LEDGER_UUID_SIZE) == 0)
			return sample->parts[i].bytes;
	return 0;
}
