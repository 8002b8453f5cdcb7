/* Browsers that come through carve-web, by TCP (docs/dev/adr/0030-web-door.md).
 *
 * carve-web carries bytes, and is believed in nothing. A connection is a door's if the user of
 * `web.user` made it, or if it has said so itself (GET /v1/web/door). The program says so before it
 * hands on the first byte. Nothing on such a connection is answered for its own user:
 *
 *   POST /v1/web/links     a user, at the Unix socket, gets a link with a secret
 *   GET /?token=SECRET     through the door: the link is used up, and the answer sets a cookie
 *   GET ...                through the door, with the cookie: answered as to the user who asked for
 *                          the link, where the table of routes has the path for the page
 *   DELETE /v1/web/browsers  a user, at the Unix socket, signs all of the user's browsers out
 *
 * The daemon has the digests of secrets alone, in memory: when it starts anew, browsers are signed
 * out. Loop thread. */
#pragma once

#include <stdbool.h>

struct call;

/* Whether a browser may have sent this. */
bool api_door_is(const struct call *call);
/* Has call->peer be the user who is signed in, who may look. False: the call is answered. */
bool api_door_enter(struct call *call);

void api_post_web_link(struct call *call, const char *unused);
void api_delete_web_browsers(struct call *call, const char *unused);
/* Says of a connection that it is a door's. Refused where web.user did not make it. */
void api_get_door(struct call *call, const char *unused);
