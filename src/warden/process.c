#include "warden/process.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

void warden_process_name(const char *name)
{
	prctl(PR_SET_NAME, name, 0, 0, 0);
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

int warden_process_keep(int *const *fds, unsigned count)
{
	int above[WARDEN_KEPT_MAX], first_closed = WARDEN_FIRST_FD + (int)count;

	if (count > WARDEN_KEPT_MAX)
		return -EINVAL;
	/* Out of the way of one another first. */
	for (unsigned i = 0; i < count; i++)
		if ((above[i] = fcntl(*fds[i], F_DUPFD_CLOEXEC, first_closed)) < 0)
			return -errno;
	for (unsigned i = 0; i < count; i++) {
		*fds[i] = WARDEN_FIRST_FD + (int)i;
		if (dup3(above[i], *fds[i], O_CLOEXEC) < 0)
			return -errno;
	}
	return close_range((unsigned)first_closed, ~0u, 0) < 0 ? -errno : 0;
}

int warden_rights_keep(uint32_t capabilities)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct had[2] = {0}, data[2] = {0};

	/* A sandbox may have taken some away: without, what needs them fails, and is answered so.
	 */
	if (syscall(SYS_capget, &header, had) < 0)
		return -errno;
	data[0].permitted = data[0].effective = capabilities & had[0].permitted;
	for (unsigned capability = 0; capability <= CAP_LAST_CAP; capability++)
		if (capability >= 32 || !(capabilities & 1u << capability))
			(void)prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || syscall(SYS_capset, &header, data) < 0)
		return -errno;
	return 0;
}
