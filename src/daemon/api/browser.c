#include "daemon/api/browser.h"

#include <string.h>

#include "base/macros.h"

bool browser_asks(const struct browser_fields *fields)
{
	return fields->origin || fields->site;
}

/* The page of an attacker may have a name that leads to this machine (DNS rebinding). */
static bool host_is_here(const char *host)
{
	static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		size_t size = strlen(names[i]);

		if (!strncmp(host, names[i], size) && (!host[size] || host[size] == ':'))
			return true;
	}
	return false;
}

const char *browser_refusal(const struct browser_fields *fields, const char *method)
{
	if (!browser_asks(fields))
		return NULL;
	if (strcmp(method, "GET") != 0)
		return "a browser may look here, and change nothing";
	/* "none": the user has typed the address. */
	if (!fields->site ||
	    (strcmp(fields->site, "same-origin") != 0 && strcmp(fields->site, "none") != 0))
		return "another page has the browser ask";
	if (!fields->host || !host_is_here(fields->host))
		return "a browser has to ask for localhost, 127.0.0.1 or [::1]";
	return NULL;
}
