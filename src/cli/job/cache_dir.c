#include "cli/job/cache_dir.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/trust.h"

int cache_dir_make(const char *name, char ret[static PATH_MAX])
{
	const char *cache = secure_getenv("XDG_CACHE_HOME"), *home = secure_getenv("HOME");

	ret[0] = '\0';
	if (cache && *cache == '/')
		snprintf(ret, PATH_MAX, "%s/carve/%s", cache, name);
	else if (home && *home == '/')
		snprintf(ret, PATH_MAX, "%s/.cache/carve/%s", home, name);
	else
		return -ENOENT;
	if (!trust_path_is_own(ret))
		return -EPERM;
	for (char *slash = strchr(ret + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		(void)mkdir(ret, 0700);
		*slash = '/';
	}
	return mkdir(ret, 0700) < 0 && errno != EEXIST ? -errno : 0;
}

const char *cache_dir_why(int rc)
{
	return rc == -EPERM ? "another user can change what is there" : strerrordesc_np(-rc);
}
