/* The identity of a process, when its PID came back within the tick in which it had started. */
#include <errno.h>
#include <linux/sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/socket.h"
#include "daemon/host/bounded_root.h"
#include "daemon/host/peer.h"

#define PIDFS_MAGIC 0x50494446
/* A PID may be taken meanwhile, or the tick be over. */
#define TRIES 1000

_Noreturn static void sleeper(void)
{
	for (;;)
		pause();
}

/* A child with that PID; -1: it cannot be had. */
static pid_t child_with(pid_t pid)
{
	struct clone_args args = {
		.exit_signal = SIGCHLD, .set_tid = (uintptr_t)&pid, .set_tid_size = 1};
	pid_t child = (pid_t)syscall(SYS_clone3, &args, sizeof(args));

	if (child == 0)
		sleeper();
	return child;
}

static void end(pid_t child)
{
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

/* cmocka's skip() is a failure to whoever reads its TAP. */
static bool not_tried(const char *why)
{
	print_message("# not tried: %s\n", why);
	return false;
}

/* The right to choose PIDs, and a kernel that tells processes apart. */
static bool possible(void)
{
	struct statfs fs;
	int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	pid_t child = fork();

	if (child == 0)
		sleeper();
	end(child);
	bool tells = fstatfs(pidfd, &fs) == 0 && fs.f_type == PIDFS_MAGIC;
	close(pidfd);
	pid_t again = child_with(child);
	if (again > 0)
		end(again);
	return (tells && again == child) ||
	       not_tried("needs the right to choose PIDs, and a kernel that tells processes apart");
}

/* `first`, which has ended, and a living one of its PID and its tick. */
static void reborn(struct process_id *ret_first, pid_t *ret_second)
{
	unsigned long long born, reborn;

	for (int i = 0; i < TRIES; i++) {
		pid_t first = fork();

		if (first == 0)
			sleeper();
		assert_int_equal(process_identify(first, ret_first), 0);
		assert_int_equal(process_start_time(first, &born), 0);
		end(first);
		pid_t second = child_with(first);
		if (second < 0)
			continue;
		assert_int_equal(process_start_time(second, &reborn), 0);
		*ret_second = second;
		if (born == reborn)
			return;
		end(second);
	}
	fail();
}

static void another_process_of_the_same_tick_is_not_taken_for_it(void **state)
{
	struct process_id first, now;
	struct process_watch *watch;
	uv_loop_t loop;
	pid_t second = -1;

	if (!possible())
		return;
	reborn(&first, &second);
	assert_int_equal(process_identify(second, &now), 0);
	assert_false(process_same(first, now));
	assert_false(process_alive(first));
	assert_true(process_alive(now));
	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(process_watch_start(&loop, first, NULL, NULL, &watch), -ESRCH);
	assert_int_equal(process_watch_start(&loop, now, NULL, NULL, &watch), 0);
	process_watch_stop(watch);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
	end(second);
	assert_false(process_alive(now));
	assert_int_equal(process_identify(second, &now), -ESRCH);
}

struct told {
	struct process_watch *watch, *other;
	unsigned order; /* the how-manyth it was; 0: not called */
};

static unsigned told_count;

static void on_end(void *arg)
{
	struct told *told = arg;

	told->order = ++told_count;
	process_watch_stop(told->watch);
	process_watch_stop(told->other);
}

static void watches_of_one_process_share_its_descriptor(void **state)
{
	struct told told[4] = {0};
	struct process_watch *late;
	struct process_id child;
	uv_loop_t loop;
	pid_t pid = fork();

	if (pid == 0)
		sleeper();
	assert_int_equal(process_identify(pid, &child), 0);
	assert_int_equal(uv_loop_init(&loop), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(
			process_watch_start(&loop, child, on_end, &told[i], &told[i].watch), 0);
	assert_int_equal(process_watch_descriptor(told[0].watch),
			 process_watch_descriptor(told[3].watch));
	process_watch_stop(told[1].watch);
	told[3].other = told[2].watch;
	kill(pid, SIGKILL);
	uv_run(&loop, UV_RUN_DEFAULT);
	/* The newest first; one that was stopped is not called. */
	assert_int_equal(told[3].order, 1);
	assert_int_equal(told[2].order, 0);
	assert_int_equal(told[1].order, 0);
	assert_int_equal(told[0].order, 2);
	waitpid(pid, NULL, 0);
	assert_int_equal(process_watch_start(&loop, child, on_end, &told[0], &late), -ESRCH);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
}

/* A daemon that wrote a process down on an older kernel knew its time only. */
static void times_decide_where_there_is_no_number(void **state)
{
	struct process_id self, old, other;

	assert_int_equal(process_identify(getpid(), &self), 0);
	old = other = self;
	old.birth &= (1ull << 40) - 1;
	other.birth = old.birth + 1;
	assert_true(process_same(self, self) && process_same(old, self) && process_same(self, old));
	assert_true(process_alive(old));
	assert_false(process_same(self, other) || process_same(old, other));
	assert_true(process_not_younger(old, self) && process_not_younger(self, other));
	assert_false(process_not_younger(other, self));
}

/* A client that connects and ends, and whose PID is another's when it is looked at. */
static void a_later_owner_of_a_clients_pid_is_not_the_client(void **state)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), value;
	socklen_t size = sizeof(value);
	struct peer peer;

	if (!possible())
		return;
	snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "carve-test-peer-%d",
		 (int)getpid());
	assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(listener, 8), 0);
	for (int i = 0; i < 20; i++) {
		pid_t client = fork();

		if (client == 0) {
			int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
			_exit(connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0);
		}
		assert_int_equal(waitpid(client, &value, 0), client);
		assert_int_equal(value, 0);
		pid_t other = child_with(client);
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		assert_true(fd >= 0);
		if (getsockopt(fd, SOL_SOCKET, 77, &value, &size) < 0 && errno == ENOPROTOOPT) {
			(void)not_tried("the kernel has no SO_PEERPIDFD");
			close(fd);
			if (other > 0)
				end(other);
			break;
		}
		assert_int_equal(peer_identify(fd, &peer), -ESRCH);
		assert_int_equal(socket_peer_lives(fd), -ESRCH);
		close(fd);
		if (other > 0)
			end(other);
	}
	close(listener);
}

static void a_living_client_is_known(void **state)
{
	struct process_id self;
	struct peer peer;
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(peer_identify(pair[0], &peer), 0);
	assert_int_equal(process_identify(getpid(), &self), 0);
	assert_true(process_same(peer.process, self));
	assert_int_equal(peer.uid, geteuid());
	int lives = socket_peer_lives(pair[0]);
	assert_true(lives == 0 || lives == -ENOPROTOOPT);
	close(pair[0]);
	close(pair[1]);
}

static void groups_in_common_are_found_wherever_they_stand(void **state)
{
	struct peer viewer = {.uid = 1000, .gid = 1000, .groups = {.count = 2, .gid = {70, 50}}};
	const struct groups none = {0}, some = {.count = 3, .gid = {90, 50, 60}},
			    primary = {.count = 1, .gid = {1000}};

	assert_true(peer_shares_group(&viewer, 1001, &some));
	assert_true(peer_shares_group(&viewer, 1001, &primary));
	assert_true(peer_shares_group(&viewer, 70, &none));
	assert_true(peer_shares_group(&viewer, 1000, &none));
	assert_false(peer_shares_group(&viewer, 1001, &none));
	assert_false(peer_shares_group(&viewer, (gid_t)-1, &none));
}

static void a_group_without_a_number_is_no_group_in_common(void **state)
{
	struct peer viewer = {.uid = 1000, .gid = 65534, .groups = {.count = 1, .gid = {65534}}};
	const struct groups same = {.count = 1, .gid = {65534}};

	assert_false(peer_shares_group(&viewer, 65534, &same));
}

static void root_of_a_container_shares_no_group(void **state)
{
	struct peer viewer = {.uid = BOUNDED_ROOT_FIRST + 7, .gid = 50};
	const struct groups some = {.count = 1, .gid = {50}};

	assert_false(peer_shares_group(&viewer, 50, &some));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(groups_in_common_are_found_wherever_they_stand),
		cmocka_unit_test(a_group_without_a_number_is_no_group_in_common),
		cmocka_unit_test(root_of_a_container_shares_no_group),
		cmocka_unit_test(another_process_of_the_same_tick_is_not_taken_for_it),
		cmocka_unit_test(watches_of_one_process_share_its_descriptor),
		cmocka_unit_test(times_decide_where_there_is_no_number),
		cmocka_unit_test(a_later_owner_of_a_clients_pid_is_not_the_client),
		cmocka_unit_test(a_living_client_is_known),
	};

	return cmocka_run_group_tests_name("peer", tests, NULL, NULL);
}
