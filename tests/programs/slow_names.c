/* Preloaded into a daemon, it has the daemon ask a server for names that takes long. It takes
 * SLOW_NAMES ms for each user ID from 60000 on, and for each name that begins with "slow". Among
 * these names it knows slow-61234. */
#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void wait_long(void)
{
	const char *text = getenv("SLOW_NAMES");
	long ms = text ? atol(text) : 0;

	nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

__attribute__((visibility("default"))) int getpwuid_r(uid_t uid, struct passwd *entry, char *buffer,
						      size_t size, struct passwd **ret)
{
	*ret = NULL;
	if (uid >= 60000)
		wait_long();
	return 0;
}

__attribute__((visibility("default"))) int
getpwnam_r(const char *name, struct passwd *entry, char *buffer, size_t size, struct passwd **ret)
{
	*ret = NULL;
	if (strncmp(name, "slow", 4) != 0)
		return 0;
	wait_long();
	if (strcmp(name, "slow-61234") != 0 || size < 16)
		return 0;
	strcpy(buffer, name);
	*entry = (struct passwd){.pw_name = buffer, .pw_uid = 61234};
	*ret = entry;
	return 0;
}
