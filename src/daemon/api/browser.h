/* Browsers: they are shown the page and the lists, and change nothing.
 *
 * Anybody's page, in the browser of a user whose connection reaches carved, could have the browser
 * ask carved, too. Browsers say what they ask for (Origin, Sec-Fetch-Site), and which name they
 * have asked (Host). Pure. */
#pragma once

#include <stdbool.h>

struct browser_fields {
	const char *host, *origin, *site; /* NULL: the request has no such field */
};

/* Whether it is a browser that asks. */
bool browser_asks(const struct browser_fields *fields);
/* Why a request is refused as a browser's, or for its foreign Host; NULL: it is answered. */
const char *browser_refusal(const struct browser_fields *fields, const char *method);
/* Like browser_refusal(), for a request that came through carve-web, whatever it says of itself.
 * `name` is the name of this host in links; browsers may ask for that name, too. */
const char *browser_door_refusal(const struct browser_fields *fields, const char *method,
				 const char *name);
