/* Root of the host and root of containers. Where the test does not run as root with all that root
 * has, it is the other one that it can tell. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <linux/capability.h>

#include "base/host_root.h"

static bool capabilities_set(uint64_t wanted)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {0};

	if (syscall(SYS_capget, &header, data) < 0)
		return false;
	for (unsigned i = 0; i < 2; i++) {
		data[i].permitted &= (uint32_t)(wanted >> 32 * i);
		data[i].effective = data[i].permitted;
	}
	return syscall(SYS_capset, &header, data) == 0;
}

static bool loses_all(void)
{
	return capabilities_set(0);
}

static bool loses_one(void)
{
	return capabilities_set(~(1ull << CAP_SYS_ADMIN));
}

static bool enters_namespace(void)
{
	return unshare(CLONE_NEWUSER) == 0;
}

static bool changes_nothing(void)
{
	return true;
}

/* What host_root_is() says of a child that has done so; -1: it could not. */
static int said_of(bool (*change)(void))
{
	int ready[2], end[2];
	char byte = 0;

	assert_int_equal(pipe(ready), 0);
	assert_int_equal(pipe(end), 0);
	pid_t child = fork();
	if (child == 0) {
		close(end[1]);
		byte = change() ? 'y' : 'n';
		(void)!write(ready[1], &byte, 1);
		(void)!read(end[0], &byte, 1);
		_exit(0);
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	int said = byte == 'y' ? host_root_is(child) : -1;
	close(end[1]);
	close(end[0]);
	close(ready[0]);
	close(ready[1]);
	waitpid(child, NULL, 0);
	return said;
}

static void test_a_process_that_lacks_something_is_not_the_hosts_root(void **state)
{
	if (geteuid() != 0 || prctl(PR_CAPBSET_READ, CAP_SYS_ADMIN, 0, 0, 0) != 1)
		return; /* in a container, where all of root's processes are alike */
	host_root_remember();
	assert_int_equal(said_of(changes_nothing), true);
	assert_int_equal(said_of(loses_all), false);
	assert_int_equal(said_of(loses_one), false);
	assert_int_not_equal(said_of(enters_namespace), true);
}

static void test_nobody_is_no_root(void **state)
{
	assert_false(host_root_is(INT32_MAX));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_process_that_lacks_something_is_not_the_hosts_root),
		cmocka_unit_test(test_nobody_is_no_root),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
