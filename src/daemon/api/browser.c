#include "daemon/api/browser.h"

#include <string.h>
#include <strings.h>

#include "base/macros.h"

bool browser_asks(const struct browser_fields *fields)
{
	return fields->origin || fields->site;
}

/* Whether a Host is this name, with a port or without. */
static bool host_is(const char *host, const char *name)
{
	size_t size = strlen(name);

	return size && !strncasecmp(host, name, size) && (!host[size] || host[size] == ':');
}

/* The page of an attacker may have a name that leads to this machine (DNS rebinding). */
static bool host_is_here(const char *host)
{
	static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (host_is(host, names[i]))
			return true;
	return false;
}

static const char *page_refusal(const struct browser_fields *fields, const char *method)
{
	if (strcmp(method, "GET") != 0)
		return "a browser may look here, and change nothing";
	/* "none": the user has typed the address. */
	if (!fields->site ||
	    (strcmp(fields->site, "same-origin") != 0 && strcmp(fields->site, "none") != 0))
		return "another page has the browser ask";
	return NULL;
}

/* A name of the Internet's, which an attacker can own. Programs that are no browser name the host
 * of a Unix socket as they like, in one word. */
static bool host_is_foreign(const char *host)
{
	return strchr(host, '.') && !host_is_here(host);
}

/* Browsers say nothing of the site, nor of an origin, where a page asks its own host by plain HTTP.
 * So a foreign Host is refused in any case. */
const char *browser_refusal(const struct browser_fields *fields, const char *method)
{
	static const char here[] = "a browser has to ask for localhost, 127.0.0.1 or [::1]";

	if (!browser_asks(fields))
		return fields->host && host_is_foreign(fields->host) ? here : NULL;
	const char *refusal = page_refusal(fields, method);
	if (refusal)
		return refusal;
	return fields->host && host_is_here(fields->host) ? NULL : here;
}

/* Browsers say nothing of the site where they do not trust the connection, and there the cookie is
 * all that counts. So the Host is looked at in any case. */
const char *browser_door_refusal(const struct browser_fields *fields, const char *method,
				 const char *name)
{
	if (!fields->host || (!host_is_here(fields->host) && !host_is(fields->host, name)))
		return "a browser has to ask for the host that the link of `carve web` names";
	if (strcmp(method, "GET") != 0)
		return "a browser may look here, and change nothing";
	return browser_asks(fields) ? page_refusal(fields, method) : NULL;
}
