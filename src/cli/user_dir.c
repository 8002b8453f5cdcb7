#include "cli/user_dir.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/trust.h"

static int dir_make(const char *variable, const char *beside, const char *name,
		    char ret[static PATH_MAX])
{
	const char *base = secure_getenv(variable), *home = secure_getenv("HOME");

	ret[0] = '\0';
	if (base && *base == '/')
		snprintf(ret, PATH_MAX, "%s/carve/%s", base, name);
	else if (home && *home == '/')
		snprintf(ret, PATH_MAX, "%s/%s/carve/%s", home, beside, name);
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

int user_dir_cache(const char *name, char ret[static PATH_MAX])
{
	return dir_make("XDG_CACHE_HOME", ".cache", name, ret);
}

int user_dir_state(const char *name, char ret[static PATH_MAX])
{
	return dir_make("XDG_STATE_HOME", ".local/state", name, ret);
}

const char *user_dir_why(int rc)
{
	return rc == -EPERM ? "another user can change what is there" : strerrordesc_np(-rc);
}
