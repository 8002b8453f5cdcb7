/* A node's GPUs as devices of Kubernetes. Pure. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct error;

#define DEVICE_GPUS_MAX 64
#define DEVICE_NAME_SIZE 64
/* Sessions that belong to claims have names that begin so. */
#define DEVICE_SESSION_PREFIX "k8s."

/* Kinds of instances of one GPU; NVML numbers 18. */
#define DEVICE_PROFILES_MAX 24
#define DEVICE_UNITS_MAX 32

/* A kind of MIG instance, and where on its GPU it can be. */
struct device_profile {
	char name[24];    /* "1g.10gb" */
	uint64_t memory;  /* bytes */
	uint32_t starts;  /* memory units, a bit each */
	uint32_t refused; /* those of `starts` that the driver refused lately */
	uint8_t size;     /* memory units */
	uint8_t slices;   /* compute slices */
	uint8_t limit;    /* instances at once; 0: not known */
};

/* How many processes the driver lets on a GPU: its compute mode, which carve never changes. */
enum device_mode {
	DEVICE_MODE_SHARED,
	DEVICE_MODE_EXCLUSIVE, /* one process at a time: slices there would end each other's work */
	DEVICE_MODE_PROHIBITED, /* none */
};

/* A GPU of carved. */
struct device_gpu {
	uint32_t index;
	char name[DEVICE_NAME_SIZE]; /* the device's: its UUID in small letters */
	char uuid[48];
	char product[96];
	uint64_t total;   /* bytes that slices can have when nobody has any */
	uint64_t offered; /* bytes that claims can have: without what others hold */
	uint64_t least;   /* bytes of the smallest slice */
	bool usable;      /* slices of it are granted */
	bool answers;     /* its driver does */
	bool drained;     /* an administrator lets nothing new be granted there */
	bool given_away;  /* the kubelet gave it to a pod by a device plugin */
	bool claimed;     /* claims of carve's have prepared slices of it */
	enum device_mode mode;
	bool instances; /* MIG instances of it are granted, not parts of it: */
	struct device_profile profile[DEVICE_PROFILES_MAX];
	size_t profiles;
	uint32_t taken; /* memory units of instances that no claim has or can get, a bit each */
};

/* From the answers of GET /v1/gpus and GET /v1/sessions. `ret` has room for DEVICE_GPUS_MAX. 0, or
 * negative with *err. */
int device_gpus_parse(const json_t *gpus, const json_t *sessions, struct device_gpu *ret,
		      size_t *ret_count, struct error *err);
/* Why no new slice of it can be made because of its compute mode, in words; NULL: one can. */
const char *device_mode_problem(const struct device_gpu *gpu);
/* From the answer of GET /v1/mig: fills in what is taken, by instances of others. */
void device_instances_take(const json_t *instances, const json_t *sessions, struct device_gpu *gpus,
			   size_t count);
/* The name of the device that is an instance at this start: "GPU-1g-10gb-0". NULL: a name of NVML's
 * that no device can have. */
const char *device_instance_name(const struct device_gpu *gpu, const struct device_profile *profile,
				 unsigned start, char buf[static DEVICE_NAME_SIZE]);
/* The GPU that the instance of that name is on, with its profile and start; NULL: there is none. */
const struct device_gpu *device_instance_find(const struct device_gpu *gpus, size_t count,
					      const char *name,
					      const struct device_profile **ret_profile,
					      unsigned *ret_start);
/* By the device's name; NULL: there is none. */
const struct device_gpu *device_find(const struct device_gpu *gpus, size_t count, const char *name);
/* The GPU of that device, or the one that the instance of that name is on; NULL: there is none. */
const struct device_gpu *device_owner(const char *name, const struct device_gpu *gpus,
				      size_t count);
