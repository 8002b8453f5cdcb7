/* A request for a slice as it comes over HTTP: parsed and checked, not yet placed. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/gpus.h"
#include "base/record.h"
#include "core/place.h"
#include "daemon/store/store.h"

struct error;
struct pool;

/* The word that stands for a user's current session where an ID may stand. */
#define REQUEST_CURRENT "current"
/* Priorities are within plus and minus this; above 0 only for administrators. */
#define REQUEST_PRIORITY_MAX 100

/* The means that cuts the GPU. */
enum request_backend {
	BACKEND_ANY,
	BACKEND_FRACTION,
	BACKEND_MIG,
};

struct slice_request {
	struct place_request place; /* `allowed` is set by request_resolve() */
	bool by_index;              /* GPUs were named: */
	uint8_t index[GPUS_MAX];    /* one flag for each NVML index */
	uint8_t allowed[GPUS_MAX];  /* likewise for each position in the pool */
	uint64_t wait_ns;           /* 0: now or not at all */
	uint64_t timeout_ns;        /* 0: none */
	int priority;               /* a waiting request with a higher one is served first */
	bool ephemeral;
	bool compute_given;         /* not just as a fraction is one of time, too */
	char resize[STORE_ID_SIZE]; /* not a new session: another instance for this one */
	bool together;              /* others may be in its MIG instance, too */
	enum request_backend backend;
	char profile[32];    /* PLACE_PROFILE: its name, */
	uint32_t mig_starts; /* and where it may start, a bit for each memory unit; 0: anywhere */
	bool mig_placed;     /* each instance has its place: likewise for each NVML index, */
	uint32_t mig_at[GPUS_MAX];
	uint32_t mig_on[GPUS_MAX]; /* and each position in the pool, by request_resolve() */
	bool kept;                 /* until it is released, beside the user's other sessions */
	char name[STORE_NAME_SIZE];
	char pod[STORE_POD_SIZE]; /* the pod that it is for; "": none */
	char id[STORE_ID_SIZE];   /* chosen by who asks, so that asking twice is asking once */
	bool again;               /* that session has ended, and its ID is to be had again */
};

/* The fields of the body of POST /v1/sessions (base/record_json.h); the first are the sizes. */
#define REQUEST_SIZE_FIELDS 5
extern const struct record_field request_fields[];
/* Body of POST /v1/sessions. 0, or negative with *err naming the field and what it takes. */
int request_parse(const json_t *root, struct slice_request *ret, struct error *err);
/* Body of PATCH: a size and nothing else. */
int request_parse_size(const json_t *root, struct place_request *ret, struct error *err);
/* A list of GPUs, "0-2" or "0,1" or "all", into `to`. 0, or negative with *err. */
int request_parse_gpu_ids(const json_t *value, struct slice_request *to, struct error *err);
/* Finds the named GPUs in the pool. 0, or negative with *err where one does not exist. */
int request_resolve(struct slice_request *request, const struct pool *pool, struct error *err);
/* The size that was asked for, for people: "4 GiB", "0.25 of a GPU", "2 whole GPUs". `profile`: the
 * name that a PLACE_PROFILE asks for. */
#define REQUEST_TEXT_SIZE 96
const char *request_text(const struct place_request *place, const char *profile,
			 char buf[static REQUEST_TEXT_SIZE]);
