/* Warrants for texts of the clients of calls: the launcher asks the kernel who the client is. Where
 * the daemon has no launcher it runs its own user's jobs, and needs no warrant. */
#pragma once

#include "daemon/queue/launcher.h"

struct call;
struct error;

/* Called once, unless the call's client goes away: with the warrant (malloc'ed, the callee's; NULL:
 * none is needed), or with *err. The call may be answered. */
typedef void (*api_vouched)(void *arg, struct warrant *warrant, struct error *err);
/* Has the text vouched for. The call waits meanwhile; if its client goes away, `gone` is called
 * with `arg` and nothing else is. `wish->text` stays until one of them is called. One text of a
 * call is asked for at a time. Calls of one user wait for each other, without descriptors. 0:
 * `done` may have been called before this returns. Negative with *err: no call was made. */
int api_vouch(struct call *call, const struct launcher_wish *wish, api_vouched done,
	      void (*gone)(void *arg), void *arg, struct error *err);
