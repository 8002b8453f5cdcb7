/* A slice as the command line asks for it. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/place.h"

struct cli;
struct error;

struct slice_request {
	json_t *body; /* for POST /v1/sessions; owned */
	bool sized;   /* a size was given: */
	struct place_request place;
	uint64_t wait_ns;   /* --wait-for */
	const char *option; /* an option that only makes sense with a size, or NULL */
};

/* Checks and reads all size options. 0, or negative with *err set (EXIT_CODE_USAGE). */
int slice_request_read(const struct cli *cli, struct slice_request *ret, struct error *err);
/* The error of a request without a size. */
int slice_request_unsized(const char *verb, struct error *err);
void slice_request_free(struct slice_request *request);
#define cleanup_request __attribute__((cleanup(slice_request_free)))
