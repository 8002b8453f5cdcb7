/* Descriptors that come along with messages are dropped without a wait, on kernels that cannot
 * refuse them: no socket here is told to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "daemon/host/rights.h"

#define LINGER_S 4
/* A time that is no wait for it, on a machine that stands still for a while. */
#define QUICK_NS 2000000000ull

static int reader = -1; /* the other end of a connection, which reads nothing */

static void reader_close(void)
{
	if (reader >= 0)
		close(reader);
	reader = -1;
}

/* A connection whose close waits for LINGER_S. */
static int lingering_make(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof(address);
	struct linger linger = {.l_onoff = 1, .l_linger = LINGER_S};
	char some[65536] = {0};
	int small = 4096, listener = socket(AF_INET, SOCK_STREAM, 0);

	setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	assert_int_equal(bind(listener, (struct sockaddr *)&address, length), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &length), 0);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, length), 0);
	reader_close();
	reader = accept(listener, NULL, NULL);
	close(listener);
	struct pollfd writable = {.fd = fd, .events = POLLOUT};
	while (poll(&writable, 1, 200) == 1)
		(void)send(fd, some, sizeof(some), MSG_DONTWAIT);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
	return fd;
}

/* Sends it along with `size` bytes; from then on it is only there. */
static void pass(int to, int fd, size_t size)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
	char data[8] = "message";
	struct iovec part = {.iov_base = data, .iov_len = size};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = control,
				 .msg_controllen = sizeof(control)};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	assert_int_equal(sendmsg(to, &message, 0), size);
	close(fd);
}

/* Whether the connection has ended, seen from its other end. */
static void assert_ended_at_the_other_end(void)
{
	char some[65536];
	ssize_t n;

	while ((n = read(reader, some, sizeof(some))) > 0)
		;
	assert_true(n == 0 || errno == ECONNRESET);
}

static unsigned descriptors(void)
{
	unsigned count = 0;

	for (int fd = 0; fd < 1024; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

static void test_a_close_of_what_lingers_waits(void **state)
{
	int ends[2];
	char data[8];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
	pass(ends[0], lingering_make(), 8);
	uint64_t begin = now_monotonic_ns();
	assert_int_equal(syscall(SYS_recvfrom, ends[1], data, sizeof(data), 0, NULL, NULL), 8);
	assert_true(now_monotonic_ns() - begin > (LINGER_S - 1) * 1000000000ull);
	close(ends[0]);
	close(ends[1]);
}

static void test_receiving_one_does_not(void **state)
{
	static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET};
	char data[8];

	reader_close();
	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		int ends[2];
		unsigned before = descriptors();

		assert_int_equal(socketpair(AF_UNIX, types[i], 0, ends), 0);
		int lingering = lingering_make();
		pass(ends[0], lingering, 8);
		uint64_t begin = now_monotonic_ns();
		assert_int_equal(rights_recv(ends[1], data, sizeof(data), MSG_DONTWAIT), 8);
		assert_string_equal(data, "message");
		rights_tick();
		assert_true(now_monotonic_ns() - begin < QUICK_NS);
		assert_ended_at_the_other_end();
		close(ends[0]);
		close(ends[1]);
		reader_close();
		assert_int_equal(descriptors(), before);
	}
}

/* Empty messages too, which read as the end of a connection does. */
static void test_closing_with_unread_ones_does_not(void **state)
{
	int ends[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
	assert_int_equal(send(ends[0], "", 0, 0), 0);
	pass(ends[0], lingering_make(), 0);
	pass(ends[0], lingering_make(), 8);
	uint64_t begin = now_monotonic_ns();
	rights_drain(ends[1]);
	assert_int_equal(send(ends[0], "more", 4, MSG_NOSIGNAL), -1);
	close(ends[1]);
	rights_tick();
	assert_true(now_monotonic_ns() - begin < QUICK_NS);
	assert_ended_at_the_other_end();
	close(ends[0]);
}

static void test_many_in_many_messages(void **state)
{
	int ends[2], some[2];
	unsigned before = descriptors();
	char data[8];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	assert_int_equal(pipe(some), 0);
	for (int i = 0; i < 5000; i++) {
		pass(ends[0], dup(some[1]), 8);
		assert_int_equal(rights_recv(ends[1], data, sizeof(data), 0), 8);
	}
	rights_tick();
	close(some[1]);
	/* All of them are closed, by threads that have ended. */
	assert_int_equal(read(some[0], data, 1), 0);
	close(some[0]);
	close(ends[0]);
	close(ends[1]);
	rights_tick();
	assert_true(descriptors() <= before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_close_of_what_lingers_waits),
		cmocka_unit_test(test_receiving_one_does_not),
		cmocka_unit_test(test_closing_with_unread_ones_does_not),
		cmocka_unit_test(test_many_in_many_messages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
