/* Which commits wait for the disk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <limits.h>
#include <semaphore.h>
#include <stdlib.h>
#include <unistd.h>
#include <uv.h>

#include "daemon/store/database.h"
#include "daemon/store/disk.h"

/* More than any log has before it is merged. */
#define MANY_PAGES 100000
#define PATIENCE_S 30u

static sem_t go;

static void others_work(uv_work_t *work)
{
	sem_wait(&go);
}

static void others_done(uv_work_t *work, int status)
{
}

static void count(void *arg)
{
	++*(int *)arg;
}

/* The threads are everybody's: the driver may hold all of them up for as long as it likes. */
static void a_merge_that_has_not_begun_is_called_off(void **state)
{
	struct database database = {.log_pages = INT_MAX, .path = "/nonexistent/queue.db"};
	uv_work_t others;
	struct disk disk;
	uv_loop_t loop;
	int merged = 0;

	assert_int_equal(setenv("UV_THREADPOOL_SIZE", "1", 1), 0);
	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(sem_init(&go, 0, 0), 0);
	assert_int_equal(uv_queue_work(&loop, &others, others_work, others_done), 0);
	disk_begin(&disk, &loop, &database, count, &merged);
	database.committed(database.arg, MANY_PAGES);
	disk_run(&disk);
	assert_int_equal(disk.state, DISK_MERGES);
	alarm(PATIENCE_S);
	disk_settle(&disk);
	alarm(0);
	assert_int_equal(disk.state, DISK_IDLE);
	/* It is told once, and not begun again for the same pages. */
	assert_int_equal(uv_run(&loop, UV_RUN_ONCE) && merged == 1, 1);
	disk_run(&disk);
	assert_int_equal(disk.state, DISK_IDLE);
	disk_end(&disk);
	sem_post(&go);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_merge_that_has_not_begun_is_called_off),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
