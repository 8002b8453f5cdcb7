/* The command that requests a session once more. */
#pragma once

#include "daemon/store/store.h"

#define REQUEST_AGAIN_SIZE 320
/* Writes the command that requests a session of the same size, name and time as this one, for its
 * owner to type: "carve session request --vram 8GiB --session-timeout 2h". Priority, waiting time
 * and named GPUs are left out, because the record of a session does not have them. Returns `buf`.
 * Pure. */
const char *request_again(const struct store_session *session, char buf[static REQUEST_AGAIN_SIZE]);
