/* Files that a node keeps of its claims, so that a plugin that restarts knows what it prepared:
 * one a claim, replaced by rename. And the same for CDI specs. */
#pragma once

#include <jansson.h>

#include "integrations/kubernetes/claim.h"

struct error;

/* Writes JSON to DIR/NAME.json so that readers see the old file or the whole new one, also after a
 * power cut. 0, or negative with *err. */
int checkpoint_file_write(const char *dir, const char *name, const json_t *json, struct error *err);
/* 0 with *ret (owned by the caller), -ENOENT, or negative with *err. */
int checkpoint_file_read(const char *dir, const char *name, json_t **ret, struct error *err);
/* 0 also where there is none; else negative with *err. */
int checkpoint_file_remove(const char *dir, const char *name, struct error *err);

/* What a claim has here. */
enum stored_state {
	STORED_PREPARING, /* IDs are chosen; which of the sessions exist is not known */
	STORED_PREPARED,  /* sessions and the CDI spec exist */
};

struct stored_slice {
	char session[16];
	size_t first, end; /* of the claim's devices */
};

struct stored_claim {
	enum stored_state state;
	char namespace[CLAIM_LABEL_SIZE];
	char name[CLAIM_NAME_SIZE];
	struct claim claim;
	struct stored_slice slice[CLAIM_DEVICES_MAX];
	size_t slices;
};

json_t *checkpoint_claim_json(const struct stored_claim *stored);
/* 0, or -EINVAL: it was not written by this program. Pure, like the one above. */
int checkpoint_claim_parse(const json_t *json, struct stored_claim *ret);
