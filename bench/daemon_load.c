/* Load on carved: pairs of request and release at a given rate, open loop (a late answer does not
 * put off the next request), from 64 clients that keep their connections. Prints how long each call
 * took from when it was due.
 *
 * usage: daemon_load SOCKET [PAIRS-PER-SECOND [SECONDS [SIZE]]]
 *
 * SIZE is that of a slice: above what a CUDA context takes, which a daemon learns at its start and
 * refuses to go below, and so small that 64 of them fit (1 GiB). */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define CLIENTS 64
#define SIZE_DEFAULT "1GiB"

static const char *path;
static char ask[256];     /* the request for a slice */
static char refusal[512]; /* the first answer that was none of those that are wanted */
static unsigned pairs, rate;
static uint64_t start_ns, *took_ns; /* two a pair: request, release */
static atomic_uint next_pair, failed;

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static int dial(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		perror(path);
		return -1;
	}
	return fd;
}

/* One call; the answer's status, and all of it in `answer`. */
static int call(int fd, const char *text, char *answer, size_t size)
{
	size_t length = 0;

	if (send(fd, text, strlen(text), MSG_NOSIGNAL) < 0)
		return 0;
	for (;;) {
		ssize_t n = recv(fd, answer + length, size - 1 - length, 0);

		if (n <= 0)
			return 0;
		length += (size_t)n;
		answer[length] = '\0';
		const char *body = strstr(answer, "\r\n\r\n");
		const char *field = strcasestr(answer, "content-length:");
		if (body && field &&
		    length >= (size_t)(body + 4 - answer) + strtoul(field + 15, NULL, 10))
			return (int)strtol(answer + 9, NULL, 10);
	}
}

static void fail(const char *answer)
{
	const char *body = strstr(answer, "\r\n\r\n");

	if (atomic_fetch_add(&failed, 1) == 0)
		snprintf(refusal, sizeof(refusal), "%s", body ? body + 4 : answer);
}

static void *client(void *arg)
{
	char answer[8192] = "", text[256], id[32];
	int fd = dial();
	unsigned pair;

	if (fd < 0)
		atomic_fetch_add(&failed, 1);
	while (fd >= 0 && (pair = atomic_fetch_add(&next_pair, 1)) < pairs) {
		uint64_t due = start_ns + pair * (1000000000ull / rate), now = now_ns();

		if (now < due)
			nanosleep(&(struct timespec){(time_t)((due - now) / 1000000000u),
						     (long)((due - now) % 1000000000u)},
				  NULL);
		int status = call(fd, ask, answer, sizeof(answer));
		uint64_t granted = now_ns();
		took_ns[2 * (size_t)pair] = granted - due;
		const char *at = strstr(answer, "\"id\":\"");
		if (status != 201 || !at || sscanf(at + 6, "%31[^\"]", id) != 1) {
			fail(answer);
			continue;
		}
		snprintf(text, sizeof(text), "DELETE /v1/sessions/%s HTTP/1.1\r\nHost: x\r\n\r\n",
			 id);
		if (call(fd, text, answer, sizeof(answer)) != 200)
			fail(answer);
		took_ns[2 * (size_t)pair + 1] = now_ns() - granted;
	}
	if (fd >= 0)
		close(fd);
	return NULL;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static bool ask_make(const char *size)
{
	char body[128];
	int length = snprintf(body, sizeof(body), "{\"vram\": \"%s\", \"ephemeral\": true}", size);

	snprintf(ask, sizeof(ask),
		 "POST /v1/sessions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", length,
		 body);
	return (size_t)length < sizeof(body);
}

int main(int argc, char **argv)
{
	pthread_t threads[CLIENTS];

	if (argc < 2 || !ask_make(argc > 4 ? argv[4] : SIZE_DEFAULT)) {
		fprintf(stderr, "usage: daemon_load SOCKET [PAIRS-PER-SECOND [SECONDS [SIZE]]]\n");
		return 2;
	}
	path = argv[1];
	rate = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 500;
	pairs = rate * (argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 10);
	took_ns = calloc(2 * (size_t)pairs + 1, sizeof(*took_ns));
	if (!took_ns || !rate || !pairs)
		return 2;
	start_ns = now_ns() + 100000000;
	for (int i = 0; i < CLIENTS; i++)
		pthread_create(&threads[i], NULL, client, NULL);
	for (int i = 0; i < CLIENTS; i++)
		pthread_join(threads[i], NULL);
	qsort(took_ns, 2 * (size_t)pairs, sizeof(*took_ns), by_value);
	size_t calls = 2 * (size_t)pairs;
	uint64_t p50 = took_ns[calls / 2], p99 = took_ns[calls * 99 / 100],
		 most = took_ns[calls - 1];
	printf("%u pairs at %u/s: p50 %.2f ms, p99 %.2f ms, most %.2f ms; %u failed\n", pairs, rate,
	       (double)p50 / 1e6, (double)p99 / 1e6, (double)most / 1e6, failed);
	if (failed)
		printf("the first that failed: %s\n", refusal);
	return failed ? 1 : 0;
}
