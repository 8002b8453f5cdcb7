/* Files that a node keeps of its claims, so that a plugin that restarts knows what it prepared:
 * one a claim, replaced by rename (container/json_file.h). */
#pragma once

#include <jansson.h>

#include "integrations/kubernetes/claim/claim_pod.h"
#include "integrations/kubernetes/object/claim.h"

/* The state of a claim here. */
enum stored_state {
	STORED_PREPARING, /* IDs are chosen; which of the sessions exist is not known */
	STORED_PREPARED,  /* sessions and the CDI spec exist */
};

struct stored_slice {
	char session[16];
	size_t first, end; /* the range of the claim's devices */
};

struct stored_claim {
	enum stored_state state;
	char namespace[CLAIM_LABEL_SIZE];
	char name[CLAIM_NAME_SIZE];
	char pod[CLAIM_POD_SIZE]; /* that has it: claim_pod.h; "": not known */
	struct claim claim;
	struct stored_slice slice[CLAIM_DEVICES_MAX];
	size_t slices;
};

json_t *checkpoint_claim_json(const struct stored_claim *stored);
/* 0, or -EINVAL: it was not written by this program. Pure, like the one above. */
int checkpoint_claim_parse(const json_t *json, struct stored_claim *ret);
