/* The arguments of `carve agent`: queues as NAME=N, and lists of GPUs. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "core/place.h"

struct error;

#define QUEUE_NAME_SIZE 64
#define QUEUE_IMAGE_SIZE 256
/* Queues of one agent, at most. */
#define QUEUE_LIST_MAX 64u

enum queue_size {
	QUEUE_SIZE_OF_JOB,   /* each job says its own, or its image does */
	QUEUE_SIZE_FRACTION, /* `share` of one GPU */
	QUEUE_SIZE_WHOLE,    /* gpus_min to gpus_max whole GPUs */
};

struct queue_spec {
	char name[QUEUE_NAME_SIZE];
	enum queue_size size;
	uint32_t share; /* millionths */
	uint32_t gpus_min, gpus_max;
	uint32_t most;                /* jobs at a time; 0: no limit */
	char image[QUEUE_IMAGE_SIZE]; /* the image for jobs that name none; "": none */
};

/* NAME, NAME=0.5, NAME=2, NAME=1-4, each with ",max=K" and ",docker=IMAGE". 0, or negative with
 * *err.
 */
int queue_spec_parse(const char *text, struct queue_spec *ret, struct error *err);
/* 0, or negative with *err: the characters and the length of a queue's name. */
int queue_name_check(const char *name, struct error *err);
/* Options of a container's runtime, one a line ("--ipc=host\n--init"), against lists of their names
 * ("ipc,init"): `allow` ("": all) and `deny`. NULL, or the first one that is not allowed. */
const char *queue_container_refuse(const char *args, const char *allow, const char *deny);
/* "0.5", "2", "1-4", "" as the user would write it. Returns buf. */
#define QUEUE_SIZE_TEXT 32
const char *queue_size_text(const struct queue_spec *spec, char buf[static QUEUE_SIZE_TEXT]);

/* "0-2", "0,1", "0, 1", "0 1", "all": a bit for each NVML index; all: UINT64_MAX. 0, or negative
 * with *err. */
int queue_gpus_parse(const char *text, uint64_t *ret_mask, struct error *err);
/* "0-2,5", "all". Returns buf. */
#define QUEUE_GPUS_TEXT 256
const char *queue_gpus_text(uint64_t mask, char buf[static QUEUE_GPUS_TEXT]);
