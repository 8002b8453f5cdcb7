/* Marks among locks that come and go while the kernel lists them, a page at a time. */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "daemon/settle/locks.h"

/* About as many as there are in two pages; a page has about 75. */
#define OTHERS_MOST 160
#define OTHERS_STEP 2
/* The number of locks that come and go together. */
#define MOVING 24
#define READINGS 20
/* A reading waits for the kernel, 2 ms on an idle machine and 100 ms on a busy one. After this time
 * each further place is read once. */
#define READ_MUCH_NS 20000000000ull

/* A mark of this process: the same test may run in another one. */
static struct mark ours = {.slot = 3, .life = 77, .gpu = 1, .number = 9};

static atomic_bool over;

static bool is_ours(const struct mark *mark, const void *context)
{
	(void)context;
	return mark->session == ours.session && mark->life == ours.life;
}

static bool nothing_known(const struct locks *found, const void *context)
{
	(void)found, (void)context;
	return false;
}

static void lock(int fd, short type, off_t start)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = 1};

	assert_int_equal(fcntl(fd, F_OFD_SETLK, &lock), 0);
}

static int file_with(off_t start)
{
	int fd = memfd_create("locked", MFD_CLOEXEC);

	assert_true(fd >= 0);
	lock(fd, F_RDLCK, start);
	return fd;
}

/* The kernel has a list for each CPU, with the newest in front, and lists the first CPU's first. */
static void on_cpu(bool last)
{
	cpu_set_t all, one;
	int cpu = -1;

	assert_int_equal(sched_getaffinity(getpid(), sizeof(all), &all), 0);
	for (int i = 0; i < CPU_SETSIZE && (last || cpu < 0); i++)
		if (CPU_ISSET(i, &all))
			cpu = i;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
}

static void *come_and_go(void *arg)
{
	int fds[MOVING];

	(void)arg;
	on_cpu(false);
	for (int i = 0; i < MOVING; i++)
		fds[i] = file_with(0);
	while (!over)
		for (int k = 0; k < 2 * MOVING; k++)
			lock(fds[k % MOVING], k < MOVING ? F_UNLCK : F_RDLCK, 0);
	for (int i = 0; i < MOVING; i++)
		close(fds[i]);
	return NULL;
}

static uint32_t misses(uint32_t readings)
{
	struct locks l = {0};
	uint32_t missed = 0;

	for (uint32_t i = 0; i < readings; i++) {
		assert_int_equal(locks_read(&l, UINT64_MAX / 4, is_ours, nothing_known, NULL), 0);
		missed += !locks_have(&l, &ours);
		assert_true(l.count <= 1);
	}
	locks_free(&l);
	return missed;
}

/* Wherever in its page it lies. */
static void one_that_is_there_is_found(void **state)
{
	int others[OTHERS_MOST / OTHERS_STEP + 1][OTHERS_STEP], batches = 0;
	cpu_set_t before;
	pthread_t thread;
	uint32_t missed = 0;
	uint64_t began = now_monotonic_ns();

	(void)state;
	ours.session = (uint32_t)getpid() % (1u << MARK_SESSION_BITS);
	assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
	over = false;
	assert_int_equal(pthread_create(&thread, NULL, come_and_go, NULL), 0);
	on_cpu(true);
	int fd = file_with((off_t)mark_start(&ours));
	sched_setaffinity(0, sizeof(before), &before);
	for (; batches < OTHERS_MOST / OTHERS_STEP; batches++) {
		bool much = now_monotonic_ns() - began < READ_MUCH_NS;

		missed += misses(much ? READINGS : 1);
		for (int i = 0; i < OTHERS_STEP; i++)
			others[batches][i] = file_with(i);
	}
	over = true;
	pthread_join(thread, NULL);
	while (batches-- > 0)
		for (int i = 0; i < OTHERS_STEP; i++)
			close(others[batches][i]);
	close(fd);
	assert_int_equal(missed, 0);
	assert_int_equal(misses(1), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_that_is_there_is_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
