/* The limits of a quota as JSON has them: in requests of the API, in carved.json, in answers. */
#pragma once

#include <jansson.h>

#include "base/record_json.h"
#include "core/quota.h"

/* The fields that set limits, in a struct quota. null is QUOTA_NONE, and "unlimited" is
 * QUOTA_UNLIMITED. */
extern const struct record_field quota_fields[];

/* The name of a limit in answers ("vram_bytes"), its title for people ("GPU memory"). */
const char *quota_fields_name(enum quota_limit limit);
const char *quota_fields_title(enum quota_limit limit);
/* The word of a kind in JSON; NULL: nobody set a limit. The name of the user or group ("":
 * neither); static, until the next call. */
const char *quota_fields_kind(enum quota_kind kind);
const char *quota_fields_owner(enum quota_kind kind, uint32_t id);
#define QUOTA_FIELDS_TEXT_SIZE 256
/* "vram 8 GiB, sessions 2, gpus no limit, gpu_hours 100". Returns buf. */
const char *quota_fields_text(const struct quota *quota, char buf[static QUOTA_FIELDS_TEXT_SIZE]);
/* A limit of a quota, and an amount that is used, as numbers of answers: hours are hours there. */
json_t *quota_fields_limit(enum quota_limit limit, uint64_t most);
json_t *quota_fields_amount(enum quota_limit limit, uint64_t amount);
