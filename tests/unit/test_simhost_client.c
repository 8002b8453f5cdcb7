/* The client library against a real server in a process of its own: many threads, full queues, a
 * child of fork, a server that dies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macros.h"
#include "host/client.h"
#include "host/directory.h"
#include "host/host.h"
#include "host/server.h"

#define THREADS 8
#define ROUNDS 60

struct rig {
	struct directory directory;
	pid_t server;
	int control;
	struct client *client;
};

static void serve(const char *directory, int control)
{
	static struct host host;
	static struct spec spec;
	struct server *server;
	char ready = 'r';

	if (spec_parse("h100-80gb", &spec, NULL) < 0 ||
	    host_init(&host, &spec, spec_driver_find("550", NULL), client_now()) < 0 ||
	    server_new(&host, directory, &server) < 0 || write(control, &ready, 1) != 1)
		_exit(1);
	server_run(server, control);
	server_free(server);
	host_finish(&host);
	_exit(0);
}

static int rig_make(void **state)
{
	struct rig *r = calloc(1, sizeof(*r));
	int ends[2];
	char ready;

	assert_int_equal(directory_make(&r->directory), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	r->server = fork();
	if (r->server == 0) {
		close(ends[0]);
		serve(r->directory.path, ends[1]);
	}
	close(ends[1]);
	r->control = ends[0];
	assert_int_equal(read(ends[0], &ready, 1), 1);
	setenv(WIRE_ENV_HOST, r->directory.path, 1);
	assert_int_equal(client_connect(WIRE_ROLE_CUDA, &r->client), 0);
	*state = r;
	return 0;
}

static int rig_free(void **state)
{
	struct rig *r = *state;
	int status;

	client_disconnect(r->client);
	close(r->control);
	assert_int_equal(waitpid(r->server, &status, 0), r->server);
	assert_int_equal(directory_remove(r->directory.path), 0);
	close(r->directory.lock_fd);
	free(r);
	return 0;
}

static struct wire_item kernel(int queue, uint64_t ns)
{
	return (struct wire_item){.queue = (uint16_t)queue, .ns = ns, .flags = WIRE_ITEM_LAUNCH};
}

/* One of many threads that take and give memory and run work on queues of their own. */
static void *worker(void *arg)
{
	struct client *c = arg;
	struct wire_item items[20];
	int queue = client_queue_open(c);

	assert_true(queue >= 0);
	for (uint64_t round = 1; round <= ROUNDS; round++) {
		uint64_t id;

		assert_int_equal(client_memory_reserve(c, 0, WIRE_MEMORY_LINEAR, MIB(1), &id), 0);
		for (size_t i = 0; i < ARRAY_SIZE(items); i++)
			items[i] = kernel(queue, 1000);
		assert_int_equal(client_submit(c, items, ARRAY_SIZE(items)), 0);
		uint64_t target = round * ARRAY_SIZE(items) - round % 3;
		assert_int_equal(client_queue_wait(c, queue, WIRE_WAIT_DONE, target, UINT64_MAX),
				 0);
		assert_true(client_queue_done(c, queue) >= target);
		assert_int_equal(client_memory_free(c, id), 0);
	}
	client_queue_close(c, queue);
	return NULL;
}

static void many_threads(void **state)
{
	struct rig *r = *state;
	pthread_t threads[THREADS];
	struct wire_utilization u;

	for (size_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, worker, r->client), 0);
	for (size_t i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(client_utilization(r->client, 0, &u), 0);
	/* A closed queue drops what nobody waited for: at most two kernels each. */
	uint64_t kernels = THREADS * ROUNDS * 20;
	assert_true(u.busy_ns <= kernels * 1000 + kernels); /* ends are rounded up */
	assert_true(u.busy_ns >= (kernels - 2 * THREADS) * 1000);
	assert_int_equal(client_host(r->client)->gpu[0].memory_used, 0);
}

/* Several threads wait for different items of one queue; each wakes when its own is done. */
struct waiter {
	struct client *client;
	int queue;
	uint64_t count, woken_at;
};

static void *wait_one(void *arg)
{
	struct waiter *w = arg;

	assert_int_equal(
		client_queue_wait(w->client, w->queue, WIRE_WAIT_DONE, w->count, UINT64_MAX), 0);
	w->woken_at = client_now();
	return NULL;
}

static void many_waiters(void **state)
{
	struct rig *r = *state;
	struct waiter waiters[20];
	pthread_t threads[ARRAY_SIZE(waiters)];
	struct wire_item items[ARRAY_SIZE(waiters)];
	int queue = client_queue_open(r->client);

	for (size_t i = 0; i < ARRAY_SIZE(items); i++)
		items[i] = kernel(queue, 2000000);
	uint64_t start = client_now();
	assert_int_equal(client_submit(r->client, items, ARRAY_SIZE(items)), 0);
	for (size_t i = 0; i < ARRAY_SIZE(waiters); i++) {
		waiters[i] = (struct waiter){r->client, queue, i + 1, 0};
		assert_int_equal(pthread_create(&threads[i], NULL, wait_one, &waiters[i]), 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(waiters); i++) {
		pthread_join(threads[i], NULL);
		assert_true(waiters[i].woken_at >= start + (i + 1) * 2000000);
	}
	client_queue_close(r->client, queue);
}

/* More than a queue holds: submitting waits for room, and the order stays. */
static void full_queue(void **state)
{
	struct rig *r = *state;
	static struct wire_item items[3 * WIRE_QUEUE_ITEMS_MAX];
	int queue = client_queue_open(r->client);

	for (size_t i = 0; i < ARRAY_SIZE(items); i++)
		items[i] = kernel(queue, 5000);
	assert_int_equal(client_submit(r->client, items, ARRAY_SIZE(items)), 0);
	assert_int_equal(client_queue_submitted(r->client, queue), ARRAY_SIZE(items));
	assert_int_equal(
		client_queue_wait(r->client, queue, WIRE_WAIT_DONE, ARRAY_SIZE(items), UINT64_MAX),
		0);
	client_queue_close(r->client, queue);
}

static void waiting_ends(void **state)
{
	struct rig *r = *state;
	int queue = client_queue_open(r->client);
	struct wire_item item = kernel(queue, 3000000000);

	assert_int_equal(client_submit(r->client, &item, 1), 0);
	assert_int_equal(client_queue_wait(r->client, queue, WIRE_WAIT_STARTED, 1, UINT64_MAX), 0);
	assert_int_equal(client_queue_wait(r->client, queue, WIRE_WAIT_DONE, 1, 20000000),
			 -ETIMEDOUT);
	assert_int_equal(client_queue_wait(r->client, queue, WIRE_WAIT_DONE, 1, 0), -ETIMEDOUT);
	kill(r->server, SIGKILL);
	assert_int_equal(client_queue_wait(r->client, queue, WIRE_WAIT_DONE, 1, UINT64_MAX),
			 -ENOTCONN);
	assert_int_equal(client_check(r->client), -ENOTCONN);
	assert_int_equal(client_submit(r->client, &item, 1), -ENOTCONN);
	assert_int_equal(client_utilization(r->client, 0, &(struct wire_utilization){0}),
			 -ENOTCONN);
}

static void queues_run_out(void **state)
{
	struct rig *r = *state;
	static int queues[WIRE_QUEUES_MAX];

	for (size_t i = 0; i < WIRE_QUEUES_MAX; i++) {
		queues[i] = client_queue_open(r->client);
		assert_int_equal(queues[i], i);
	}
	assert_int_equal(client_queue_open(r->client), -EMFILE);
	client_queue_close(r->client, queues[77]);
	assert_int_equal(client_queue_open(r->client), 77);
}

/* In a forked child everything is refused, and nothing it does reaches the parent's connection. */
static void forked_child(void **state)
{
	struct rig *r = *state;
	struct wire_item item = kernel(0, 1);
	uint64_t id;
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		bool refused = client_check(r->client) == -ECHILD &&
			       client_memory_reserve(r->client, 0, 0, 1, &id) == -ECHILD &&
			       client_submit(r->client, &item, 1) == -ECHILD &&
			       client_queue_open(r->client) == -ECHILD &&
			       client_queue_wait(r->client, 0, 0, 1, UINT64_MAX) == -ECHILD;
		client_disconnect(r->client);
		_exit(refused ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(client_check(r->client), 0);
	assert_int_equal(client_memory_reserve(r->client, 0, WIRE_MEMORY_LINEAR, 5, &id), 0);
}

int main(void)
{
#define RIGGED(f) cmocka_unit_test_setup_teardown(f, rig_make, rig_free)
	const struct CMUnitTest tests[] = {
		RIGGED(many_threads), RIGGED(many_waiters),   RIGGED(full_queue),
		RIGGED(waiting_ends), RIGGED(queues_run_out), RIGGED(forked_child),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
