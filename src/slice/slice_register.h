/* Tells the daemon that a process belongs to a session (proto/attach.h, ATTACH_COMMAND). */
#pragma once

#include <stdint.h>

struct attach_reply;

/* One exchange on the attach socket at `attach`, for the calling process. `flags`: ATTACH_FLAG_*.
 * A daemon that ends before it answers is followed by the next, which is asked again. A supervisor
 * holds the socket meanwhile, so the request may just wait there. Blocks for 5 s at most, and for
 * 5 s more where connections wait in line. Returns 0 with the daemon's reply, or -errno. -EAGAIN:
 * no daemon answers. -EPERM: another user listens there. -EPROTO: the answer is malformed. */
int slice_register(const char *attach, const char *session, uint32_t flags,
		   struct attach_reply *ret);
