/* Which devices the driver shall show to this process: the slice's, narrowed and reordered by what
 * the user asked for inside it. Pure. */
#pragma once

#include <stddef.h>

#include "proto/ledger.h"

#define VISIBLE_NAME "CUDA_VISIBLE_DEVICES"
/* Enough for the UUIDs of all GPUs of a slice. */
#define VISIBLE_SIZE (LEDGER_GPUS_MAX * 48ul)

/* Writes the list of UUIDs that CUDA_VISIBLE_DEVICES must be for the driver. The user's own value
 * is `user` (NULL: not set) and counts within the slice: indices, or "GPU-"/"MIG-" and as much of a
 * UUID as is unambiguous. As with the driver's own reading, the first entry that names no device of
 * the slice ends the list; an empty list shows none. */
void visible_list(const struct ledger_limits *limits, const char *user, char buf[VISIBLE_SIZE]);
