/* ResourceClaims of the API server (resource.k8s.io/v1), as far as a node needs them. Pure. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct error;

/* The API allows 32 devices a claim. */
#define CLAIM_DEVICES_MAX 32
#define CLAIM_NAME_SIZE 254
#define CLAIM_LABEL_SIZE 64

/* A device that the scheduler gave a claim. */
struct claim_device {
	char request[CLAIM_LABEL_SIZE]; /* without the name of a subrequest */
	char pool[CLAIM_NAME_SIZE];
	char name[CLAIM_LABEL_SIZE];
	char share[CLAIM_LABEL_SIZE]; /* the share's ID; empty: the device is not shared */
	uint64_t memory;              /* bytes of it that are the claim's; 0: not told */
	uint32_t share_ppm;           /* millionths of its time; 0: none is promised */
};

struct claim {
	char uid[CLAIM_LABEL_SIZE];
	struct claim_device device[CLAIM_DEVICES_MAX];
	size_t count;
};

/* The part of a GPU's time as the capacity "cores" has it, in per cent: "50", "12.5". Returns ret.
 */
#define CLAIM_CORES_SIZE 16
const char *claim_cores_format(uint32_t share_ppm, char ret[static CLAIM_CORES_SIZE]);

/* Whether it may stand in names of files and devices: 1 to 63 letters, digits and '-'. */
bool claim_label_valid(const char *text);

/* Reads the devices that `driver` has to prepare for the claim. Returns 0, or negative with *err:
 * it is not allocated, has none of this driver, or says something that makes no sense. A claim of a
 * template that carve did not make is refused, too. */
int claim_parse(const json_t *json, const char *driver, struct claim *ret, struct error *err);

/* Devices of one request are one slice, and stand next to each other. Says where the slice that
 * begins at `first` ends. Negative with *err: its devices differ in size. */
int claim_slice_end(const struct claim *claim, size_t first, size_t *ret_end, struct error *err);
