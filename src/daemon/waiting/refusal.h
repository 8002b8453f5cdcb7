/* Why a request was not granted, in words and numbers. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "core/place.h"

struct claim;
struct error;
struct pool;

/* Words the refusal of place_decide()'s result `rc` (-ENOSPC or -EDOM) for people: what was asked
 * and what each GPU has left. */
void refusal_explain(const struct pool *pool, const struct place_request *request, int rc,
		     struct error *err);
/* The hint of a refused size that no GPU has, and that would fit in MiB; else leaves *err alone. */
void refusal_mebibytes_hint(const struct pool *pool, const struct place_request *request,
			    struct error *err);
/* Whether the request has no room only because GPUs are drained. */
bool refusal_is_by_drains(const struct pool *pool, const struct place_request *request);
/* The verdict of one GPU on a request, e.g. "3.20 GiB of 79.1 GiB free". */
#define REFUSAL_GPU_SIZE 256
void refusal_of_gpu(const struct pool *pool, uint32_t index, const struct place_gpu *place,
		    const struct place_request *request, enum place_reason reason, char *buf,
		    size_t size);
/* Names the owner of a GPU that is not this daemon's. Returns buf. */
#define REFUSAL_HOLDER_SIZE 128
const char *refusal_holder(const struct claim *claim, char buf[static REFUSAL_HOLDER_SIZE]);
/* There is no GPU at all. */
void refusal_no_gpu(const struct pool *pool, struct error *err);
