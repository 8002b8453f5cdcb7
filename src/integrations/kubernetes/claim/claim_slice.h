/* The slices of a claim at carved: the request for one, its session, and its GPUs. Functions block.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct api;
struct carved;
struct device_gpu;
struct error;
struct stored_claim;
struct stored_slice;

/* The ID of a new session: 13 characters of 31, which nobody guesses. 0 or -EIO. */
int claim_slice_id(char ret[static 16]);
/* The request for a slice, by its number; the caller's. NULL with *err where the claim does not fit
 * this node. */
json_t *claim_slice_request(const struct stored_claim *stored, size_t slice,
			    const struct device_gpu *gpus, size_t gpu_count, struct error *err);
/* Makes the session. Asks until there is room, for so many seconds, while api_goes_on(). 0 with
 * *ret, the session as carved shows it (owned by the caller), or negative with *err. */
int claim_slice_make(struct carved *carved, const struct api *api, const json_t *body,
		     unsigned seconds, json_t **ret, struct error *err);
/* Whether a session is in the list of those that live. */
bool claim_slice_lives(const json_t *sessions, const char *id);
/* Ends a session if it is in that list; force: and processes in it. 0, or negative with *err. */
int claim_slice_release(struct carved *carved, const json_t *sessions, const char *id, bool force,
			struct error *err);
