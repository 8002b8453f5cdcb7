#include "cli/node/node_name.h"

#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/error.h"

bool node_is_name(const char *node)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789.-";

	return *node && *node != '-' && strspn(node, allowed) == strlen(node);
}

bool node_is_here(const char *node, char name[static HOST_NAME_MAX + 1])
{
	memset(name, 0, HOST_NAME_MAX + 1);
	(void)gethostname(name, HOST_NAME_MAX);
	size_t length = strcspn(name, ".");
	return !node || !strcasecmp(node, name) || !strcasecmp(node, "localhost") ||
	       (strlen(node) == length && !strncasecmp(node, name, length));
}

int node_refuse(const char *node, const char *name, const char *advice, const char *after,
		struct error *err)
{
	error_set(err, EXIT_CODE_USAGE, "'%.64s' is not this host, which is '%.64s'", node, name);
	if (node_is_name(node))
		error_hint(err, "run the command on %.64s; for a node of a cluster: %s %.64s%s",
			   node, advice, node, after);
	else
		error_hint(err, "leave NODE out, or name a host");
	return -EXIT_CODE_USAGE;
}
