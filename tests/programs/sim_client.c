/* Drives the simulated host's protocol for the system tests: one command a line on stdin, one line
 * of answer each: "ok ..." or "error ERRNO". */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/macros.h"
#include "host/client.h"

#define BATCH 64

static struct client *client;

static uint64_t number(const char *word)
{
	return strtoull(word, NULL, 0);
}

static void answer(int status)
{
	if (status < 0)
		printf("error %s\n", strerrorname_np(-status));
	else
		puts("ok");
}

static void reserve(char **word)
{
	uint64_t id;
	int status = client_memory_reserve(client, (wire_device)number(word[1]),
					   (enum wire_memory)number(word[2]), number(word[3]), &id);

	if (status < 0)
		answer(status);
	else
		printf("ok %" PRIu64 "\n", id);
}

static void look(char **word)
{
	uint64_t used, capacity;
	int status = client_memory_look(client, (wire_device)number(word[1]), &used, &capacity);

	if (status < 0)
		answer(status);
	else
		printf("ok %" PRIu64 " %" PRIu64 "\n", used, capacity);
}

static void release(char **word)
{
	answer(client_memory_free(client, number(word[1])));
}

/* Takes blocks of that size until refused. */
static void fill(char **word)
{
	uint64_t count = 0, id;
	int status;

	while ((status = client_memory_reserve(client, (wire_device)number(word[1]),
					       WIRE_MEMORY_LINEAR, number(word[2]), &id)) == 0)
		count++;
	printf("ok %" PRIu64 " %s\n", count, strerrorname_np(-status));
}

/* A child that holds the connection and, asked to use it, must be refused. */
static void fork_holder(char **word)
{
	uint64_t id;
	int ends[2];
	int status = 0;

	if (pipe(ends) < 0)
		abort();
	pid_t pid = fork();
	if (pid == 0) {
		status = client_memory_reserve(client, 0, WIRE_MEMORY_LINEAR, 1, &id);
		if (write(ends[1], &status, sizeof(status)) < 0)
			abort();
		close(STDIN_FILENO);
		close(STDOUT_FILENO);
		pause();
		_exit(0);
	}
	if (read(ends[0], &status, sizeof(status)) < 0)
		abort();
	close(ends[0]);
	close(ends[1]);
	printf("ok %d %s\n", (int)pid, strerrorname_np(-status));
}

static void items_fill(struct wire_item *items, int queue, char **word)
{
	for (int i = 0; i < BATCH; i++)
		items[i] = (struct wire_item){.device = (wire_device)number(word[1]),
					      .queue = (uint16_t)queue,
					      .engine = WIRE_ENGINE_COMPUTE,
					      .flags = WIRE_ITEM_LAUNCH,
					      .ns = number(word[2])};
}

/* run DEVICE NS COUNT: so many kernels; answers when all are done, with the time taken. */
static void run(char **word)
{
	struct wire_item items[BATCH];
	uint64_t count = number(word[3]), start = client_now();
	int queue = client_queue_open(client), status = 0;

	items_fill(items, queue, word);
	for (uint64_t left = count; left && status == 0; left -= MIN(left, BATCH))
		status = client_submit(client, items, MIN(left, BATCH));
	if (status == 0)
		status = client_queue_wait(client, queue, WIRE_WAIT_DONE, count, UINT64_MAX);
	uint64_t took = client_now() - start;
	client_queue_close(client, queue);
	if (status < 0)
		answer(status);
	else
		printf("ok %" PRIu64 "\n", took);
}

/* sync DEVICE NS COUNT: one kernel at a time, each waited for. */
static void sync_run(char **word)
{
	struct wire_item items[BATCH];
	uint64_t count = number(word[3]), start = client_now();
	int queue = client_queue_open(client), status = 0;

	items_fill(items, queue, word);
	for (uint64_t i = 1; i <= count && status == 0; i++) {
		status = client_submit(client, items, 1);
		if (status == 0)
			status = client_queue_wait(client, queue, WIRE_WAIT_DONE, i, UINT64_MAX);
	}
	uint64_t took = client_now() - start;
	client_queue_close(client, queue);
	if (status < 0)
		answer(status);
	else
		printf("ok %" PRIu64 "\n", took);
}

static void hex(const uint8_t *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++)
		printf("%02x", bytes[i]);
}

static void export(char **word)
{
	uint8_t note[CLIENT_NOTE_SIZE] = "note", token[CLIENT_TOKEN_SIZE];
	int fd = memfd_create("backing", MFD_CLOEXEC);

	if (fd < 0 || write(fd, "content", 7) != 7)
		abort();
	int status = client_memory_export(client, number(word[1]), fd, note, token);
	close(fd);
	if (status < 0) {
		answer(status);
		return;
	}
	fputs("ok ", stdout);
	hex(token, sizeof(token));
	putchar('\n');
}

static void import_answer(int status, const struct client_import *import)
{
	char content[8] = {0};

	if (status < 0) {
		answer(status);
		return;
	}
	if (pread(import->fd, content, 7, 0) < 0)
		abort();
	printf("ok %" PRIu64 " %" PRIu64 " %s %s\n", import->id, import->bytes, content,
	       (const char *)import->note);
	close(import->fd);
}

static void import(char **word)
{
	uint8_t token[CLIENT_TOKEN_SIZE] = {0};
	struct client_import result;

	for (size_t i = 0; i < sizeof(token); i++) {
		char digits[3] = {word[1][2 * i], word[1][2 * i + 1], '\0'};
		token[i] = (uint8_t)strtoul(digits, NULL, 16);
	}
	import_answer(client_memory_import(client, token, &result), &result);
}

/* export_fd ID: leaves the shareable descriptor open and inheritable, answers its number. */
static void export_fd(char **word)
{
	uint8_t note[CLIENT_NOTE_SIZE] = "note";
	int backing = memfd_create("backing", MFD_CLOEXEC), fd = -1;

	if (backing < 0 || write(backing, "content", 7) != 7)
		abort();
	int status = client_memory_export_fd(client, number(word[1]), backing, note, &fd);
	close(backing);
	if (status < 0)
		answer(status);
	else
		printf("ok %d\n", fd);
}

static void import_fd(char **word)
{
	struct client_import result;

	import_answer(client_memory_import_fd(client, (int)number(word[1]), &result), &result);
}

static void close_one(char **word)
{
	close((int)number(word[1]));
	answer(0);
}

static void list(char **word)
{
	struct wire_process processes[64];
	int n = client_process_list(client, (wire_device)number(word[1]), processes,
				    ARRAY_SIZE(processes));

	if (n < 0) {
		answer(n);
		return;
	}
	printf("ok");
	for (int i = 0; i < n; i++)
		printf(" %d:%" PRIu64, processes[i].pid, processes[i].bytes);
	putchar('\n');
}

static void utilization(char **word)
{
	struct wire_utilization u;
	int status = client_utilization(client, (wire_device)number(word[1]), &u);

	if (status < 0)
		answer(status);
	else
		printf("ok %u %" PRIu64 "\n", u.gpu_permille, u.busy_ns);
}

static void fault(char **word)
{
	int error = 0;
	bool hit = client_fault(client, (enum wire_fault)number(word[1]),
				(wire_device)number(word[2]), word[3], &error);

	printf("ok %d %d\n", hit, error);
}

static void unsupported(char **word)
{
	client_unsupported(client, word[1]);
	answer(0);
}

static void gpu(char **word)
{
	const struct wire_gpu *g = &client_host(client)->gpu[number(word[1])];

	printf("ok %s %u %" PRIu64 " %u\n", g->uuid_text, g->pci_bus, g->memory_used, g->flags);
}

static const struct {
	const char *name;
	int words;
	void (*run)(char **word);
} commands[] = {
	{"reserve", 4, reserve},
	{"free", 2, release},
	{"look", 2, look},
	{"fill", 3, fill},
	{"fork", 1, fork_holder},
	{"run", 4, run},
	{"sync", 4, sync_run},
	{"export", 2, export},
	{"import", 2, import},
	{"export_fd", 2, export_fd},
	{"import_fd", 2, import_fd},
	{"close", 2, close_one},
	{"list", 2, list},
	{"fault", 4, fault},
	{"unsupported", 2, unsupported},
	{"gpu", 2, gpu},
	{"utilization", 2, utilization},
};

static void command(char *line)
{
	char *word[5] = {0}, *state;
	int words = 0;

	for (char *w = strtok_r(line, " \n", &state); w && words < 5;
	     w = strtok_r(NULL, " \n", &state))
		word[words++] = w;
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
		if (words && words == commands[i].words && !strcmp(word[0], commands[i].name)) {
			commands[i].run(word);
			return;
		}
	}
	puts("error what");
}

int main(int argc, char **argv)
{
	char line[1024];
	enum wire_role role =
		argc > 1 && !strcmp(argv[1], "nvml") ? WIRE_ROLE_NVML : WIRE_ROLE_CUDA;
	int status = client_connect(role, &client);

	if (status < 0) {
		fprintf(stderr, "connect: %s\n", strerrorname_np(-status));
		return 1;
	}
	printf("ok %d\n", client_pid(client));
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		command(line);
		fflush(stdout);
	}
	client_disconnect(client);
	return 0;
}
