/* The GPU models that a simulated host can be built from. Constant data: no ownership, any thread.
 * Numbers are those of the vendor's data sheets and of published nvidia-smi / deviceQuery output.
 * The driver's reserve, a context's cost and idle power vary with drivers. They are near
 * what is seen with 535 to 580. A "-mirrored" model is the same board with the other kind of die,
 * on which MIG instances have other legal places. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sim_arch {
	SIM_ARCH_VOLTA = 5, /* values of nvmlDeviceArchitecture_t */
	SIM_ARCH_TURING = 6,
	SIM_ARCH_AMPERE = 7,
	SIM_ARCH_ADA = 8,
	SIM_ARCH_HOPPER = 9,
	SIM_ARCH_BLACKWELL = 10,
};

struct sim_model {
	const char *key;   /* "h100-80gb": as written in a SPEC */
	const char *alias; /* another spelling of the key, or NULL */
	const char *name;  /* as the driver reports it */
	enum sim_arch arch;
	uint16_t cc_major, cc_minor;
	uint32_t pci_device_id;    /* NVML's form: device << 16 | vendor */
	uint32_t pci_subsystem_id; /* likewise */
	uint32_t sm_count;
	uint32_t max_threads_per_sm;
	uint32_t max_blocks_per_sm;
	uint32_t shared_per_sm;          /* bytes */
	uint32_t shared_per_block_optin; /* bytes */
	uint64_t memory_total;           /* bytes, NVML's total */
	uint64_t memory_reserved; /* bytes of it the driver keeps; CUDA's total is the difference */
	uint64_t context_bytes;   /* the cost of one CUDA context */
	uint32_t clock_sm_mhz;    /* maximum */
	uint32_t clock_mem_mhz;
	uint32_t clock_video_mhz;
	uint32_t bus_width; /* bits */
	uint32_t l2_bytes;
	uint64_t bandwidth_memory; /* bytes per second, device memory */
	uint64_t bandwidth_pcie;   /* bytes per second, host copies, each direction */
	uint32_t pcie_gen, pcie_width;
	uint32_t power_limit_w; /* default and highest */
	uint32_t power_min_w;   /* the lowest it can be set to */
	uint32_t power_idle_w;  /* the power that it draws then */
	uint32_t copy_engines;
	bool ecc;              /* has ECC memory, and it is on: data-centre boards */
	bool has_fan;          /* it has a fan of its own */
	const char *mig_class; /* placement class ("g7", "a30", ...), NULL: no MIG */
};

/* All models, in the order of `simhost list`. */
const struct sim_model *sim_models(size_t *ret_count);
/* By key or alias. NULL: no such model. */
const struct sim_model *sim_model_find(const char *key);
