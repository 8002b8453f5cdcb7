/* The HTTP side of an upgrade: clients keep their connections, and get the answers that are due.
 *
 * This stays, though carve's own client tries again. A request that waits keeps its place in the
 * queue and its deadline. A client that does not try again (curl, a script, a kubelet) gets its
 * answer. Both are held by tests/system/daemon/test_daemon_upgrade.py. */
#pragma once

#include <stdbool.h>

struct call;
struct handover;
struct http_server;

/* Nothing is half received or half sent: all that there is can be handed over. */
bool http_quiet(const struct http_server *server);
/* `upgrade` is the call that asked for it. */
void http_hand_over(struct http_server *server, struct handover *handover,
		    const struct call *upgrade);
/* Goes on where the last program left; the server runs already. */
void http_take_over(struct http_server *server, struct handover *handover);
