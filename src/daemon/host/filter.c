#include "daemon/host/filter.h"

#include <errno.h>
#include <sched.h>
#include <seccomp.h>
#include <stddef.h>

#include "base/macros.h"

/* By name: the library knows the numbers, also those that this system's headers do not have. One
 * that it does not know either is not there to be called. */
static const char *const taken[] = {
	/* other processes */
	"ptrace",
	"process_vm_readv",
	"process_vm_writev",
	"process_madvise",
	"pidfd_getfd",
	"kcmp",
	/* users and rights */
	"setuid",
	"setgid",
	"setreuid",
	"setregid",
	"setresuid",
	"setresgid",
	"setfsuid",
	"setfsgid",
	"setgroups",
	"capset",
	/* file systems and namespaces */
	"mount",
	"umount",
	"umount2",
	"pivot_root",
	"chroot",
	"move_mount",
	"open_tree",
	"fsopen",
	"fsconfig",
	"fsmount",
	"fspick",
	"mount_setattr",
	"setns",
	"unshare",
	"quotactl",
	"quotactl_fd",
	"open_by_handle_at",
	"name_to_handle_at",
	"fanotify_init",
	"fanotify_mark",
	"mknod",
	"mknodat",
	/* the kernel */
	"bpf",
	"perf_event_open",
	"userfaultfd",
	"io_uring_setup",
	"io_uring_enter",
	"io_uring_register",
	"init_module",
	"finit_module",
	"delete_module",
	"create_module",
	"kexec_load",
	"kexec_file_load",
	"reboot",
	"swapon",
	"swapoff",
	"acct",
	"syslog",
	"lookup_dcookie",
	"uselib",
	"nfsservctl",
	"sysfs",
	"_sysctl",
	"ustat",
	"vhangup",
	"vmsplice",
	"keyctl",
	"add_key",
	"request_key",
	"personality",
	"modify_ldt",
	/* the machine */
	"iopl",
	"ioperm",
	"pciconfig_read",
	"pciconfig_write",
	"settimeofday",
	"clock_settime",
	"clock_adjtime",
	"adjtimex",
	"stime",
	"sethostname",
	"setdomainname",
};

#define NAMESPACES                                                                                 \
	(CLONE_NEWNS | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | \
	 CLONE_NEWCGROUP)

static int rules_add(scmp_filter_ctx filter)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(taken); i++) {
		int number = seccomp_syscall_resolve_name(taken[i]);

		if (number != __NR_SCMP_ERROR)
			rc = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), number, 0);
		/* Some have no number on this machine. */
		if (rc == -EDOM)
			rc = 0;
	}
	/* Its flags are in memory, where a filter cannot look: the C library takes clone() then. */
	if (rc == 0)
		rc = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS),
				      seccomp_syscall_resolve_name("clone3"), 0);
	for (unsigned bit = 0; rc == 0 && bit < 32; bit++)
		if (NAMESPACES & 1u << bit)
			rc = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1,
					      SCMP_A0(SCMP_CMP_MASKED_EQ, 1u << bit, 1u << bit));
	return rc;
}

int filter_apply(void)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);

	if (!filter)
		return -ENOMEM;
	/* Calls by the numbers of another architecture. */
	int rc = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(EPERM));
	if (rc == 0)
		rc = rules_add(filter);
	if (rc == 0)
		rc = seccomp_load(filter);
	seccomp_release(filter);
	return rc;
}
