/* The GPUs of this host as the driver reports them, through NVML loaded at run time. Every call may
 * block for milliseconds (opening: for seconds), so none is made on the daemon's loop; all are
 * thread-safe once opened. Sizes in bytes. Errors: -errno; -ENODEV: no driver or no GPU, -ENXIO:
 * this GPU is lost, -EIO: anything else that the driver says. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/ledger.h"

#define GPUS_MAX LEDGER_GPUS_MAX
/* Processes on one GPU, as usual and at most. Those that only draw take a few MiB each. */
#define GPU_PROCESSES_MAX 1024u
#define GPU_PROCESSES_MOST 16384u

struct error;
struct gpus;

struct gpu_info {
	uint32_t index;     /* NVML's */
	int unread;         /* 0, or why nothing else is known of it, as of a lost one */
	char uuid_text[48]; /* "GPU-..." */
	uint8_t uuid[LEDGER_UUID_SIZE];
	char name[96];
	char pci_bus_id[32];
	int minor; /* the N of /dev/nvidiaN; -1: not known */
	uint64_t total,
		reserved; /* 0: in MIG mode not everybody is told, or there are no figures */
	bool mig;         /* MIG mode is on, whatever is pending */
	bool mig_capable;
};

/* The users that a GPU admits, by the driver's compute mode. */
enum gpu_exclusive {
	GPU_SHARED = 0,
	GPU_EXCLUSIVE,  /* one process at a time */
	GPU_PROHIBITED, /* nobody */
};

struct gpu_process {
	pid_t pid;
	bool graphics; /* it draws, and computes nothing */
	uint64_t bytes;
};

/* The memory that a process holds in one MIG instance. */
struct gpu_part {
	pid_t pid;                      /* 0: what is used beyond all processes */
	uint8_t uuid[LEDGER_UUID_SIZE]; /* the MIG device's */
	uint64_t bytes;
};

/* The most readings of one sample: of an exact one, and of any other. */
#define GPU_READINGS_MOST 48
#define GPU_READINGS_USUAL 24

/* The contents of one GPU at one moment. `processes` and `parts` are owned by the struct. */
struct gpu_sample {
	int error;                      /* 0, or why the rest is not set; -ENOTSUP: NVML has no
					   memory figures for the GPU, as of unified memory */
	uint64_t total, reserved, used; /* used: without reserved */
	int utilization;                /* per cent of the time, by the driver; -1: not known */
	int exclusive;                  /* enum gpu_exclusive */
	int mig;                        /* MIG mode is on; -1: not known. Set with an error, too */
	bool mig_capable;               /* likewise */
	bool mig_pending;               /* with that: the mode that it will have */
	struct gpu_process *processes;
	size_t process_count;
	/* By MIG instance, where that was asked for and every instance could be read. */
	struct gpu_part *parts;
	size_t part_count;
	bool parts_known;
	/* `used` beyond the sum of all processes, by several readings; none where it is what it
	 * was. `sure`: they agree on what it is. */
	struct gpu_reading {
		int64_t least, most; /* the true value is mostly in between: the driver gives its
					figures one after the other, and they may move meanwhile */
	} readings[GPU_READINGS_MOST];
	unsigned reading_count;
	bool sure;
};

static inline bool gpu_reading_allows(const struct gpu_reading *r, int64_t unlisted)
{
	return r->least <= unlisted && unlisted <= r->most;
}

/* Nothing is known of what is used beyond the sum of all processes. */
#define GPU_UNLISTED_ANY INT64_MIN

/* Loads libnvidia-ml.so.1 and initialises it. -ENODEV with *err where there is no driver. */
int gpus_open(struct gpus **ret, struct error *err);
void gpus_close(struct gpus *gpus);
/* Closes the driver for somebody's change that nobody may have it open for; samples wait until it
 * is taken up again, by the same thread. */
void gpus_let_go(struct gpus *gpus);
void gpus_take_up(struct gpus *gpus);
/* Whether they are a simulated host's. */
bool gpus_are_simulated(const struct gpus *gpus);
/* Text, valid until gpus_close. */
const char *gpus_driver_version(const struct gpus *gpus);
/* Fills at most `max` entries; *ret_count may be 0. A GPU that does not answer has only `index`
 * and `unread` set; the rest is zero. */
int gpus_list(struct gpus *gpus, struct gpu_info *list, size_t max, size_t *ret_count);
/* One of them, which may answer by now. */
void gpus_info(struct gpus *gpus, uint32_t index, struct gpu_info *ret);
/* Memory and processes of one GPU; by one thread at a time.
 *
 * `exact`: memory and processes are to be of one moment, because their difference is the memory of
 * programs outside carve. Without it that is tried only where it costs little.
 * `unlisted`: the memory that was used beyond the sum of all processes so far. A first reading that
 * shows the same is enough, if nothing moved during it.
 * `parts`: the processes of each MIG instance, too. That takes three calls for each instance.
 * The result's `error` says what went wrong. */
void gpus_sample(struct gpus *gpus, uint32_t index, bool exact, int64_t unlisted, bool parts,
		 struct gpu_sample *ret);
/* The sum of all processes. */
uint64_t gpu_sample_listed(const struct gpu_sample *sample);
/* The part of a GPU's multiprocessors that a process used, in millionths of the time. */
struct gpu_use {
	pid_t pid;
	uint32_t ppm;
	bool works;   /* it used multiprocessors, memory or the engines for video */
	bool present; /* it has a context there now; else it had */
};
#define GPU_USE_UNKNOWN UINT32_MAX
/* A window that has what the driver says of the last second. */
#define GPU_USE_WINDOW_NS 1100000000ull
/* All processes on it (0 ppm: it used nothing), by what the driver says of the last `window_ns`,
 * which it keeps for some seconds; `max` entries at most. *ret_busy: all of them, ended ones too;
 * GPU_USE_UNKNOWN: not known. 0 or -errno; -ENOTSUP: this driver does not tell what each used. */
int gpus_use(struct gpus *gpus, uint32_t index, uint64_t window_ns, struct gpu_use *list,
	     size_t max, size_t *ret_count, uint32_t *ret_busy);
/* How far the GPU's own clock is behind CLOCK_MONOTONIC when that is now_ns, ns. A simulated GPU's
 * stands still while the machine has not played yet what it does next; a real one's is never
 * behind: 0. Costs no system call. */
uint64_t gpus_clock_lag(const struct gpus *gpus, uint32_t index, uint64_t now_ns);
/* The words for an error of a sample, as in "the GPU cannot be used: it needs a reset". Constant.
 */
const char *gpu_sample_error_text(int error);
void gpu_sample_clear(struct gpu_sample *sample);
/* Bytes that the driver says a process holds; 0 where it lists none. */
uint64_t gpu_sample_process_bytes(const struct gpu_sample *sample, pid_t pid);
/* Likewise, in the MIG instance with that UUID, where `parts_known`. */
uint64_t gpu_sample_part_bytes(const struct gpu_sample *sample, pid_t pid,
			       const uint8_t uuid[static LEDGER_UUID_SIZE]);

/* "GPU-xxxxxxxx-xxxx-..." or "MIG-..." to 16 bytes. 0 or -EINVAL. */
int gpu_uuid_parse(const char *text, uint8_t ret[static LEDGER_UUID_SIZE]);
