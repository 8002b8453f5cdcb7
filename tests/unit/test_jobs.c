/* Warrants, and what the warden makes of requests about jobs that a worker which was broken into
 * may send. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/process.h"
#include "base/socket.h"
#include "proto/shim.h"
#include "proto/warden.h"
#include "proto/warden_jobs.h"
#include "warden/jobs.h"
#include "warden/warden.h"

#define ALL_SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)
#define TEXT "{\"argv\": [\"true\"]}"

/* ---- warrants ----------------------------------------------------------------------------- */

/* The first two of the function's published vectors, key 00 01 .. 0f. */
static void test_the_code_is_siphash(void **state)
{
	static const unsigned char expected[2][16] = {
		{0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55,
		 0x02, 0x93},
		{0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44, 0x34, 0x76, 0x59, 0x11, 0x9b, 0x22,
		 0xfc, 0x45},
	};
	unsigned char bytes[16];
	struct warrant_key key;
	uint64_t got[2];

	for (unsigned char i = 0; i < sizeof(bytes); i++)
		bytes[i] = i;
	memcpy(&key, bytes, sizeof(key));
	for (size_t size = 0; size < 2; size++) {
		siphash(&key, bytes, size, got);
		assert_memory_equal(got, expected[size], sizeof(got));
	}
}

static void test_a_warrant_is_for_its_user_and_text(void **state)
{
	struct warrant_key key = {{1, 2}}, other = {{1, 3}};
	struct warrant warrant = {.magic = WARRANT_MAGIC,
				  .version = WARRANT_VERSION,
				  .uid = 1000,
				  .gid = 1000,
				  .group_count = 1,
				  .kind = WARRANT_JOB,
				  .group = {7}};
	struct warrant changed;

	assert_int_equal(warrant_sign(&key, &warrant, TEXT, sizeof(TEXT)), 0);
	assert_int_equal(warrant_check(&key, &warrant, WARRANT_JOB, TEXT, sizeof(TEXT)), 0);
	assert_int_equal(warrant_check(&key, &warrant, WARRANT_JOB, TEXT, sizeof(TEXT) - 1),
			 -EPERM);
	assert_int_equal(warrant_check(&key, &warrant, WARRANT_PODS, TEXT, sizeof(TEXT)), -EPERM);
	assert_int_equal(warrant_check(&other, &warrant, WARRANT_JOB, TEXT, sizeof(TEXT)), -EPERM);
	for (size_t at = 0; at < sizeof(warrant); at++) {
		changed = warrant;
		((unsigned char *)&changed)[at] ^= 1;
		assert_int_equal(warrant_check(&key, &changed, WARRANT_JOB, TEXT, sizeof(TEXT)),
				 -EPERM);
	}
}

/* ---- a warden --------------------------------------------------------------------------- */

static char dir[] = "/tmp/carve-test-jobs-XXXXXX";
static struct jobs_place place;
static int link_fd = -1;

_Noreturn static void warden_run(int end)
{
	struct warden_place all = {.dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC),
				   .jobs = &place};
	struct pollfd fds[WARDEN_POLLS_MAX];
	struct warden *warden;

	signal(SIGCHLD, SIG_IGN); /* shims are nobody's to wait for */
	if (warden_open(&all, &warden) < 0)
		_exit(EXIT_FAILURE);
	warden_link(warden, end);
	while (warden_is_linked(warden)) {
		int timeout_ms = -1;
		unsigned count = warden_poll_fill(warden, fds, &timeout_ms);

		if (poll(fds, count, timeout_ms) >= 0)
			warden_poll_run(warden, fds, count);
	}
	_exit(EXIT_SUCCESS);
}

static int setup(void **state)
{
	if (!jobs_may())
		return 0;
	static char shim[64];
	static const char script[] = "#!/bin/sh\nexec sleep 30\n";

	if (!mkdtemp(dir) || chmod(dir, 0755) < 0)
		return -1;
	snprintf(shim, sizeof(shim), "%s/shim", dir);
	int fd = open(shim, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
	if (fd < 0 || fchmod(fd, 0755) < 0 || write_all(fd, script, strlen(script)) < 0)
		return -1;
	close(fd);
	place = (struct jobs_place){
		.jobs_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
		.jobs_path = dir,
		.shim = shim,
		.attach = "/nowhere/attach.sock",
		.key = {{11, 22}},
	};
	bool fresh;
	if (rights_open(&place.rights, place.jobs_fd, &fresh) < 0)
		return -1;
	int ends[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
		return -1;
	pid_t pid = fork();
	if (pid == 0) {
		close(ends[0]);
		warden_run(ends[1]);
	}
	close(ends[1]);
	link_fd = ends[0];
	return pid < 0 ? -1 : 0;
}

/* Its cgroups outlive a warden. Processes that were killed leave them a moment later. */
static void cgroups_remove(void)
{
	jobs_shims_begin(&place);
	for (int i = 0; i < 500; i++) {
		jobs_shim_end(&place, "5.1");
		jobs_shim_end(&place, "6.1");
		jobs_shim_end(&place, "0.1");
		jobs_left_step(&place);
		bool gone = !*place.cgroup || rmdir(place.cgroup) == 0 || errno == ENOENT;
		bool tasks_gone =
			!*place.tasks_cgroup || rmdir(place.tasks_cgroup) == 0 || errno == ENOENT;
		if (gone && tasks_gone)
			return;
		(void)poll(NULL, 0, 10);
	}
}

static int teardown(void **state)
{
	char command[128];

	if (link_fd < 0)
		return 0;
	close(link_fd);
	(void)wait(NULL);
	cgroups_remove();
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

struct asking {
	enum warden_operation operation;
	const void *request;
	size_t size;
	const int *fds;
	unsigned count;
};

/* The answer to a request: its error, with what it says and what came along. */
static int ask(struct asking a, void *answer, size_t answer_size, int *ret_fd)
{
	struct pollfd readable = {.fd = link_fd, .events = POLLIN};
	struct {
		struct warden_head head;
		unsigned char data[2048];
	} message = {.head = {.magic = WARDEN_MAGIC,
			      .version = WARDEN_VERSION,
			      .operation = (uint16_t)a.operation,
			      .size = (uint32_t)a.size}};

	memcpy(message.data, a.request, a.size);
	assert_int_equal(
		descriptors_send(link_fd, &message, sizeof(message.head) + a.size, a.fds, a.count),
		0);
	assert_int_equal(poll(&readable, 1, -1), 1);
	ssize_t n = descriptor_receive(link_fd, &message, sizeof(message), ret_fd);
	assert_true(n > 0 && warden_answer_fits(&message.head, (size_t)n, answer_size));
	if (!message.head.error && answer_size)
		memcpy(answer, message.data, answer_size);
	return message.head.error;
}

static int ask_start(struct warden_job job, const int *fds, unsigned count, int *ret_fd)
{
	struct warden_started started;
	int rc = ask((struct asking){WARDEN_JOB_START, &job, sizeof(job), fds, count}, &started,
		     sizeof(started), ret_fd);

	assert_true(rc || started.pid > 1);
	return rc;
}

static int ask_vouch(uint32_t kind, const int *fds, unsigned count, struct warrant *ret)
{
	struct warden_vouch request = {.kind = kind, .count = 1, .attempts = 1};
	int none = -1;
	int rc = ask((struct asking){WARDEN_JOB_VOUCH, &request, sizeof(request), fds, count}, ret,
		     sizeof(*ret), &none);

	assert_int_equal(none, -1);
	return rc;
}

static int ask_files(struct warden_job_files files)
{
	struct warden_job_limits limits;
	int none = -1;

	return ask((struct asking){WARDEN_JOB_FILES, &files, sizeof(files), NULL, 0}, &limits,
		   sizeof(limits), &none);
}

static int memfd(const void *data, size_t size, int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_int_equal(write_all(fd, data, size), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

/* A job as an honest worker would have it started. */
static struct shim_head head_of(const struct warrant *warrant, const char *text)
{
	return (struct shim_head){.magic = SHIM_HEAD_MAGIC,
				  .kind = SHIM_TASK_JOB,
				  .text_size = (uint32_t)strlen(text),
				  .run = {.job = 5, .index = -1, .attempt = 1, .queue = "half"},
				  .warrant = *warrant};
}

static int start_head(const struct shim_head *head, const char *text, const char *owners, int seals)
{
	struct warden_job job = {.job = head->run.job, .attempt = head->run.attempt};
	struct {
		struct shim_head head;
		char texts[256];
	} all = {.head = *head};
	int go = -1;

	snprintf(all.texts, sizeof(all.texts), "%s%s", text, owners);
	int fd = memfd(&all, sizeof(all.head) + strlen(all.texts), seals);
	int rc = ask_start(job, &fd, 1, &go);
	close(fd);
	assert_int_equal(go >= 0, rc == 0);
	close_fd(&go);
	return rc;
}

/* Starts what a warrant and a text say. */
static int start(const struct warrant *warrant, const char *text, int seals)
{
	struct shim_head head = head_of(warrant, text);

	return start_head(&head, text, "", seals);
}

/* Starts what two warrants and texts say: of a job, and of how its pod is made. */
static int start_pod(const struct warrant *warrant, const struct warrant *pods, const char *said)
{
	struct shim_head head = head_of(warrant, TEXT);

	head.kind = SHIM_TASK_POD;
	head.run.job = 6;
	head.owner_size = (uint32_t)strlen(said);
	head.owner_warrant = *pods;
	return start_head(&head, TEXT, said, ALL_SEALS);
}

static int vouch_kind(int socket_fd, uint32_t kind, const char *text, struct warrant *ret)
{
	int fds[] = {socket_fd, memfd(text, strlen(text), 0)};
	int rc = ask_vouch(kind, fds, 2, ret);

	close(fds[1]);
	return rc;
}

static int vouch_for(int socket_fd, const char *text, struct warrant *ret)
{
	return vouch_kind(socket_fd, WARRANT_JOB, text, ret);
}

/* This process connects to itself: the listener's end, then the client's. */
static void connection_make(int ret[2])
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket", dir);
	(void)unlink(address.sun_path);
	assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(listener, 1), 0);
	ret[1] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(ret[1], (struct sockaddr *)&address, sizeof(address)), 0);
	ret[0] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	assert_true(ret[0] >= 0);
	close(listener);
}

static int vouch_as(uint32_t kind, const char *text, struct warrant *ret)
{
	int ends[2];

	connection_make(ends);
	int rc = vouch_kind(ends[0], kind, text, ret);
	close(ends[0]);
	close(ends[1]);
	return rc;
}

static int vouch(const char *text, struct warrant *ret)
{
	return vouch_as(WARRANT_JOB, text, ret);
}

/* The kernel names root at the other end of each, as root listens there or made it. */
static void test_nobody_is_vouched_for_who_connected_to_no_listener(void **state)
{
	struct warrant warrant;
	int ends[2];

	if (link_fd < 0)
		skip();
	assert_int_equal(vouch_for(link_fd, TEXT, &warrant), EPERM);
	connection_make(ends);
	assert_int_equal(vouch_for(ends[1], TEXT, &warrant), EPERM);
	assert_int_equal(vouch_for(ends[0], TEXT, &warrant), 0);
	close(ends[0]);
	close(ends[1]);
	assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends), 0);
	assert_int_equal(vouch_for(ends[0], TEXT, &warrant), EPERM);
	close(ends[0]);
	close(ends[1]);
	ends[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(vouch_for(ends[0], TEXT, &warrant), EPERM);
	close(ends[0]);
}

static void test_a_pod_is_made_as_its_user_said(void **state)
{
	struct warrant job, pods, forged;

	if (link_fd < 0)
		skip();
	assert_int_equal(vouch(TEXT, &job), 0);
	assert_int_equal(vouch_as(WARRANT_PODS, "{\"pods\": 1}", &pods), 0);
	assert_int_equal(start_pod(&job, &pods, "{\"pods\": 1}"), 0);
	assert_int_equal(start_pod(&job, &pods, "{\"pods\": 2}"), EKEYREVOKED);
	assert_int_equal(start_pod(&job, &job, "{\"pods\": 1}"), EKEYREVOKED);
	forged = pods;
	forged.uid++;
	assert_int_equal(start_pod(&job, &forged, "{\"pods\": 1}"), EPERM);
	/* Another user's words, though they were vouched for. */
	forged = pods;
	forged.uid++;
	assert_int_equal(warrant_sign(&place.key, &forged, "{}", 2), 0);
	assert_int_equal(start_pod(&job, &forged, "{}"), EPERM);
}

static void test_only_what_was_vouched_for_is_started(void **state)
{
	struct warrant warrant, forged;

	if (link_fd < 0)
		skip();
	assert_int_equal(vouch(TEXT, &warrant), 0);
	assert_int_equal(warrant.uid, getuid());
	assert_int_equal(start(&warrant, TEXT, ALL_SEALS), 0);
	assert_int_equal(start(&warrant, "{\"argv\": [\"evil\"]}", ALL_SEALS), EKEYREJECTED);
	assert_int_equal(start(&warrant, TEXT, ALL_SEALS & ~F_SEAL_WRITE), EINVAL);
	forged = warrant;
	forged.uid = 60101;
	assert_int_equal(start(&forged, TEXT, ALL_SEALS), EKEYREJECTED);
	forged = warrant;
	forged.group[forged.group_count++] = 42;
	assert_int_equal(start(&forged, TEXT, ALL_SEALS), EKEYREJECTED);
	forged = (struct warrant){.magic = WARRANT_MAGIC, .version = WARRANT_VERSION};
	assert_int_equal(start(&forged, TEXT, ALL_SEALS), EKEYREJECTED);
}

/* Each field of the head that a broken worker may fill. */
static void test_what_the_worker_says_of_an_attempt_is_checked(void **state)
{
	struct warrant job, pods;
	struct shim_head head;

	if (link_fd < 0)
		skip();
	assert_int_equal(vouch(TEXT, &job), 0);
	assert_int_equal(vouch_as(WARRANT_PODS, TEXT, &pods), 0);
	head = head_of(&pods, TEXT);
	assert_int_equal(start_head(&head, TEXT, "", ALL_SEALS), EKEYREJECTED);
	/* No job has the number 0. */
	head = head_of(&job, TEXT);
	head.run.job = 0;
	assert_int_equal(start_head(&head, TEXT, "", ALL_SEALS), EINVAL);
	/* Words of an agent's owner, such as an image, are a pod's alone. */
	head = head_of(&job, TEXT);
	head.owner_size = 2;
	assert_int_equal(start_head(&head, TEXT, "{}", ALL_SEALS), EINVAL);
	head = head_of(&job, TEXT);
	snprintf(head.run.queue, sizeof(head.run.queue), "--privileged");
	assert_int_equal(start_head(&head, TEXT, "", ALL_SEALS), EINVAL);
	snprintf(head.run.queue, sizeof(head.run.queue), "$(id)");
	assert_int_equal(start_head(&head, TEXT, "", ALL_SEALS), EINVAL);
	memset(head.run.queue, 'a', sizeof(head.run.queue));
	assert_int_equal(start_head(&head, TEXT, "", ALL_SEALS), EINVAL);
	head = head_of(&job, TEXT);
	head.run.queue[20] = 'x'; /* behind the end of the name */
	assert_int_equal(start_head(&head, TEXT, "", ALL_SEALS), EINVAL);
	head = head_of(&job, TEXT);
	head.run.index = 3; /* of no array */
	assert_int_equal(start_head(&head, TEXT, "", ALL_SEALS), EINVAL);
	head = head_of(&job, TEXT);
	head.run.pod_unit = SHIM_UNIT_GPUS;
	assert_int_equal(start_head(&head, TEXT, "", ALL_SEALS), EINVAL);
}

static void test_requests_that_are_wrong_are_refused(void **state)
{
	struct warden_job start = {.job = 1, .attempt = 1}, wrong;
	struct shim_head head = {.magic = SHIM_HEAD_MAGIC, .text_size = 1000};
	int fd, null = open("/dev/null", O_RDONLY | O_CLOEXEC), ends[2];
	struct warrant warrant;

	if (link_fd < 0)
		skip();
	assert_int_equal(ask_start(start, NULL, 0, &fd), EINVAL);
	assert_int_equal(ask_start(start, &null, 1, &fd), EINVAL);
	int memory = memfd(&head, sizeof(head), ALL_SEALS);
	assert_int_equal(ask_start(start, &memory, 1, &fd), EINVAL);
	wrong = start;
	wrong.job = UINT64_MAX;
	assert_int_equal(ask_start(wrong, &memory, 1, &fd), EINVAL);
	wrong = start;
	wrong.attempt = 0;
	assert_int_equal(ask_start(wrong, &memory, 1, &fd), EINVAL);
	wrong = start;
	wrong.below = 1;
	assert_int_equal(ask_start(wrong, &memory, 1, &fd), EINVAL);
	/* No socket; a socket that nobody connected; no text; and a kind that there is not. */
	int fds[] = {null, memory};
	assert_int_equal(ask_vouch(WARRANT_JOB, fds, 2, &warrant), ENOTSOCK);
	fds[0] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_not_equal(ask_vouch(WARRANT_JOB, fds, 2, &warrant), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	assert_int_equal(ask_vouch(WARRANT_JOB, ends, 1, &warrant), EINVAL);
	for (uint32_t kind = 0; kind < 8; kind++)
		if (kind < WARRANT_JOB || kind > WARRANT_PODS)
			assert_int_equal(vouch_as(kind, TEXT, &warrant), EINVAL);
	assert_int_equal(vouch(TEXT, &warrant), 0);
	close(memory);
	close(null);
	close(fds[0]);
	close(ends[0]);
	close(ends[1]);
}

static void test_files_that_were_removed_are_made_anew(void **state)
{
	struct warden_job_files files = {.uid = 60101};
	char path[128], key[128];
	struct stat st;

	if (link_fd < 0)
		skip();
	snprintf(key, sizeof(key), "%s/key", dir);
	snprintf(path, sizeof(path), "%s/60101", dir);
	(void)unlink(key);
	assert_int_equal(ask_files(files), 0);
	assert_int_equal(stat(key, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_uid, 60101);
	assert_int_equal(st.st_mode & 07777, 0750);
	files.reserved = 1;
	assert_int_equal(ask_files(files), EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_code_is_siphash),
		cmocka_unit_test(test_a_warrant_is_for_its_user_and_text),
		cmocka_unit_test(test_nobody_is_vouched_for_who_connected_to_no_listener),
		cmocka_unit_test(test_only_what_was_vouched_for_is_started),
		cmocka_unit_test(test_a_pod_is_made_as_its_user_said),
		cmocka_unit_test(test_what_the_worker_says_of_an_attempt_is_checked),
		cmocka_unit_test(test_requests_that_are_wrong_are_refused),
		cmocka_unit_test(test_files_that_were_removed_are_made_anew),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
