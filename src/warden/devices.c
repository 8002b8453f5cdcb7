/* The permissions of device files: entries of users in their access lists. The kernel keeps those
 * of /dev in memory, so nothing here blocks. A file is opened by its path alone (O_PATH), which
 * does nothing to a device. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/acl.h"
#include "base/device_files.h"
#include "base/file.h"
#include "proto/warden_devices.h"
#include "warden/message.h"
#include "warden/run.h"

/* The entry that the user has already; 0 permissions: none. */
static unsigned permissions_of(const void *acl, size_t size, uid_t uid)
{
	struct acl_user user;
	size_t at = 0;

	while (acl_next_user(acl, size, &at, &user))
		if (user.uid == uid)
			return user.permissions;
	return 0;
}

static int access_set(const char *path, mode_t mode, const struct warden_device *r)
{
	static char before[ACL_SIZE_MAX], after[ACL_SIZE_MAX];
	ssize_t size = getxattr(path, ACL_ATTRIBUTE, before, sizeof(before));

	if (size < 0 && errno != ENODATA)
		return -errno;
	size = size < 0 ? 0 : size;
	unsigned has = permissions_of(before, (size_t)size, r->uid);
	if ((has && has != WARDEN_DEVICE_MARK) || !has == !r->opens)
		return 0;
	const struct acl_user user = {.uid = r->uid,
				      .permissions = r->opens ? WARDEN_DEVICE_MARK : 0};
	size = acl_set_user(before, (size_t)size, mode, &user, after, sizeof(after));
	if (size < 0)
		return (int)size;
	return setxattr(path, ACL_ATTRIBUTE, after, (size_t)size, 0) < 0 ? -errno : 0;
}

int warden_run_device_access(struct warden_place *place, const struct warden_message *request,
			     struct warden_result *ret)
{
	const struct warden_device *r = (const void *)request->data;
	char path[DEVICE_FILE_PATH_SIZE], self[64];
	struct stat st;

	if (!device_file_path(r->device, path))
		return -EINVAL;
	cleanup_close int fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!device_file_is(&st) || st.st_uid != geteuid() || !device_file_is_closed(&st))
		return -EPERM;
	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	return access_set(self, st.st_mode, r);
}
