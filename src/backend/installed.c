#include "backend/installed.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macros.h"

/* There where systemd is the host's first process: sd_booted(3). */
#define SYSTEMD_RUNS "/run/systemd/system"
#define UNIT "carved.service"

/* The directories in which systemd looks for units of the system: systemd.unit(5). */
static const char *const unit_directories[] = {
	"/etc/systemd/system",     "/run/systemd/system", "/usr/local/lib/systemd/system",
	"/usr/lib/systemd/system", "/lib/systemd/system",
};

static bool is_directory(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool installed_for_all(void)
{
	char path[128];

	if (is_directory(RUNTIME_DIR_SYSTEM))
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(unit_directories) && is_directory(SYSTEMD_RUNS); i++) {
		snprintf(path, sizeof(path), "%s/" UNIT, unit_directories[i]);
		if (access(path, F_OK) == 0)
			return true;
	}
	return false;
}

int installed_user_dir(char *buf, size_t size)
{
	const char *named = secure_getenv("XDG_RUNTIME_DIR");
	struct stat st;
	int n;

	if (named && *named == '/' && stat(named, &st) == 0 && S_ISDIR(st.st_mode) &&
	    trust_uid_is_own(st.st_uid) && !(st.st_mode & (S_IWGRP | S_IWOTH)))
		n = snprintf(buf, size, "%s/carve", named);
	else
		n = snprintf(buf, size, "/tmp/carve-%u", (unsigned)geteuid());
	return n < (int)size ? 0 : -ENAMETOOLONG;
}
