#include "cli/check/check_devices.h"

#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/device_files.h"
#include "base/macros.h"

/* The user of a system daemon, which has to open them. */
#define DAEMON_USER "carve"

static bool path_of(const char *root, uint32_t device, char ret[static PATH_MAX])
{
	char path[DEVICE_FILE_PATH_SIZE];

	return device_file_path(device, path) &&
	       snprintf(ret, PATH_MAX, "%s%s", root, path) < PATH_MAX;
}

static void name_add(struct devices_found *ret, const char *name)
{
	size_t used = strlen(ret->members);

	if (strcmp(name, DAEMON_USER) != 0 && strcmp(name, "root") != 0)
		(void)snprintf(ret->members + used, sizeof(ret->members) - used, "%s%s",
			       used ? ", " : "", name);
}

/* The members of the files' group, by the machine's databases. Those whose primary group it is are
 * not looked for in a directory server's list. */
static void members_find(gid_t gid, struct devices_found *ret)
{
	// NOLINTBEGIN(concurrency-mt-unsafe): the command has one thread
	const struct group *group = getgrgid(gid);

	if (!group) {
		snprintf(ret->group, sizeof(ret->group), "%u", (unsigned)gid);
		return;
	}
	snprintf(ret->group, sizeof(ret->group), "%s", group->gr_name);
	for (char **name = group->gr_mem; *name; name++)
		name_add(ret, *name);
	FILE *users = fopen("/etc/passwd", "re");
	for (const struct passwd *user; users && (user = fgetpwent(users));)
		if (user->pw_gid == gid)
			name_add(ret, user->pw_name);
	if (users)
		(void)fclose(users);
	// NOLINTEND(concurrency-mt-unsafe)
}

static void file_note(struct devices_found *ret, const char *path)
{
	if (!ret->file[0])
		snprintf(ret->file, sizeof(ret->file), "%.255s", path);
}

/* Programs open these two, and a GPU's. */
static bool is_needed(uint32_t device)
{
	return device < DEVICE_FILES_MINORS || device == DEVICE_FILE_CONTROL ||
	       device == DEVICE_FILE_UVM;
}

void check_devices_look(const char *root, struct devices_found *ret)
{
	char path[PATH_MAX];
	gid_t group = 0;
	struct stat st;

	*ret = (struct devices_found){.closed = true};
	for (uint32_t i = 0; i < DEVICE_FILES_END; i++) {
		/* Those that all GPUs share come first. */
		uint32_t device = (i + DEVICE_FILE_CONTROL) % DEVICE_FILES_END;

		if (!path_of(root, device, path) || stat(path, &st) < 0)
			continue;
		ret->any = true;
		if (!device_file_is_closed(&st)) {
			if (ret->closed)
				ret->file[0] = '\0';
			ret->closed = false;
			file_note(ret, path + strlen(root));
		} else if (st.st_gid != 0 && st.st_mode & 060) {
			group = st.st_gid;
		}
		if (is_needed(device) && access(path, R_OK | W_OK) < 0) {
			ret->refused = true;
			file_note(ret, path + strlen(root));
		}
	}
	if (group)
		members_find(group, ret);
}
