/* Tells the daemon that a process belongs to a session (proto/attach.h, ATTACH_COMMAND). */
#pragma once

#include <stdint.h>

struct attach_reply;

/* One exchange on the attach socket at `attach`, for the calling process. `flags`: ATTACH_FLAG_*.
 * Blocks for 5 s at most. 0 with the daemon's reply, or -errno: -EAGAIN it does not answer, -EPERM
 * another user listens there, -EPROTO the answer is malformed. */
int slice_register(const char *attach, const char *session, uint32_t flags,
		   struct attach_reply *ret);
