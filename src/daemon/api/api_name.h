/* Users and groups that a call names. A name may be a server's, so the call may wait for it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/host/names.h"

struct call;

/* The number of the user or group of that name or number. False: answered, as there is nobody of
 * that name; or that is not known yet, and the call is handled anew once it is. */
bool api_name_find(struct call *call, enum names_kind kind, const char *name, uint32_t *ret);
