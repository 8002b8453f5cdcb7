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
};

/* From the answers of GET /v1/gpus and GET /v1/sessions. `ret` has room for DEVICE_GPUS_MAX. 0, or
 * negative with *err. */
int device_gpus_parse(const json_t *gpus, const json_t *sessions, struct device_gpu *ret,
		      size_t *ret_count, struct error *err);
/* By the device's name; NULL: there is none. */
const struct device_gpu *device_find(const struct device_gpu *gpus, size_t count, const char *name);
