/* A message of a worker to its warden, an answer of the warden, and a warrant with its text. A
 * request that passes the checks is one of the operations of the table, as large as that takes, and
 * its numbers are within bounds. A warrant that passes is the one that was given out, byte for
 * byte. */
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "proto/shim.h"
#include "proto/warden_devices.h"
#include "proto/warden_jobs.h"
#include "proto/warden_limits.h"
#include "proto/warden_mig.h"
#include "proto/warden_outside.h"
#include "warden/message.h"
#include "warden/operations.h"
#include "warden/warrant.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int right)
{
	if (!right)
		abort();
}

static void signal_look(const struct warden_signal *r)
{
	if (r->pid <= 1 || !r->birth || r->uid == UINT32_MAX ||
	    (r->signal != SIGTERM && r->signal != SIGKILL))
		abort();
}

/* A signal to a program outside of slices is asked for in its own user's name. */
static void outside_look(const struct warden_outside *r)
{
	if (r->signal.uid != r->marks.uid || r->marks.marks & WARDEN_MARKS_SPARED)
		abort();
}

/* A session's ID leads nowhere as a part of a path. */
static void entry_look(const struct warden_limit_entry *r)
{
	size_t length = strnlen(r->session, sizeof(r->session));

	if (r->pid <= 1 || !r->birth || length == sizeof(r->session) || length < 3 ||
	    strchr(r->session, '/') || strchr(r->session, '.'))
		abort();
}

static void values_look(const struct warden_message *m)
{
	const struct warden_process *process = (const void *)m->data;
	const struct warden_job *job = (const void *)m->data;
	const struct warden_vouch *vouch = (const void *)m->data;
	const struct warden_job_remove *remove = (const void *)m->data;
	const struct warden_job_over *over = (const void *)m->data;
	const struct warden_mig *mig = (const void *)m->data;
	const struct warden_mig_wanted *wanted = (const void *)m->data;

	switch ((enum warden_operation)m->head.operation) {
	case WARDEN_SIGNAL:
	case WARDEN_SIGNAL_ON_GPU:
	case WARDEN_SIGNAL_PEER:
		signal_look((const void *)m->data);
		return;
	case WARDEN_SIGNAL_OUTSIDE:
		signal_look((const void *)m->data);
		outside_look((const void *)m->data);
		return;
	case WARDEN_DEVICE_ACCESS:
		if (!((const struct warden_device *)m->data)->uid)
			abort();
		return;
	case WARDEN_OWN_SYNC: /* it is no worker's to ask */
		abort();
	case WARDEN_ROOT_LOOK:
	case WARDEN_SLICE_LOOK:
	case WARDEN_NAMESPACE_LOOK:
	case WARDEN_NAMESPACE_HOLD:
		if (process->pid <= 1 || !process->birth)
			abort();
		return;
	case WARDEN_LIMIT_PROBE:
	case WARDEN_LIMIT_LEAVE:
		return;
	case WARDEN_JOB_FILES:
		return;
	case WARDEN_JOB_VOUCH:
		check(vouch->kind - 1 < WARRANT_PODS && vouch->count && vouch->attempts);
		check(vouch->count <= WARDEN_COUNT_MAX && vouch->attempts <= WARDEN_ATTEMPTS_MAX);
		return;
	case WARDEN_JOB_REMOVE:
		check(remove->attempt && remove->files && remove->files <= SHIM_FILES_ALL);
		return;
	case WARDEN_JOB_OVER:
		check(over->count && over->count <= WARDEN_OVER_MAX);
		return;
	case WARDEN_JOB_START:
	case WARDEN_JOB_END:
		check(job->attempt && job->job <= INT64_MAX);
		return;
	case WARDEN_LIMIT_PUT:
		if (!((const struct warden_limit *)m->data)->cgroup)
			abort();
		return;
	case WARDEN_LIMIT_ENTER:
		entry_look((const void *)m->data);
		return;
	case WARDEN_MIG_LIST:
		if (wanted->count > WARDEN_MIG_MOST)
			abort();
		return;
	case WARDEN_MIG_KINDS:
	case WARDEN_MIG_MODE:
		if (mig->size)
			abort();
		return;
	case WARDEN_MIG_MAKE:
	case WARDEN_MIG_REMOVE:
		if (!mig->size || mig->start + mig->size > (int)WARDEN_MIG_MOST)
			abort();
		return;
	}
	abort(); /* it is in no table */
}

static void request_look(const uint8_t *data, size_t size)
{
	struct warden_message *m = warden_message_new();
	size_t room = sizeof(m->head) + sizeof(m->data);

	if (!m)
		return;
	/* What a request does not fill is not zero. */
	memset(m->data, 0xff, sizeof(m->data));
	memcpy(&m->head, data, size < room ? size : room);
	if (warden_head_fits(&m->head, size) && warden_operation_check(m) == 0) {
		const struct warden_operation_entry *entry =
			warden_operation_find(m->head.operation);

		if (m->head.version != WARDEN_VERSION || m->head.error || !entry ||
		    m->head.size != entry->size || size != sizeof(m->head) + entry->size)
			abort();
		values_look(m);
	}
	warden_message_free(m);
}

static void answer_look(const uint8_t *data, size_t size)
{
	struct warden_head head;

	memset(&head, 0xff, sizeof(head));
	memcpy(&head, data, size < sizeof(head) ? size : sizeof(head));
	if (warden_answer_fits(&head, size, 16) && size != sizeof(head) + (head.error ? 0u : 16u))
		abort();
}

/* The input is laid over the warrant that was given out, two bytes saying where; the rest is the
 * text that comes with it. */
static void warrant_look(const uint8_t *data, size_t size)
{
	static const struct warrant_key key = {{0x0123456789abcdef, 0xfedcba9876543210}};
	static const char text[] = "{\"argv\": [\"true\"]}";
	struct warrant given = {.magic = WARRANT_MAGIC,
				.version = WARRANT_VERSION,
				.uid = 60101,
				.gid = 60101,
				.group_count = 1,
				.kind = WARRANT_JOB,
				.group = {60101}};

	check(warrant_sign(&key, &given, text, sizeof(text)) == 0);
	check(warrant_check(&key, &given, WARRANT_JOB, text, sizeof(text)) == 0);
	if (size < 4)
		return;
	struct warrant shown = given;
	size_t at = (data[0] | (size_t)data[1] << 8) % sizeof(shown), length = data[2];

	data += 3;
	size -= 3;
	length = MIN(MIN(length, size), sizeof(shown) - at);
	memcpy((uint8_t *)&shown + at, data, length);
	const uint8_t *its = data + length;
	size_t its_size = size - length;
	int same = !memcmp(&shown, &given, sizeof(shown)) && its_size == sizeof(text) &&
		   !memcmp(its, text, sizeof(text));
	check((warrant_check(&key, &shown, WARRANT_JOB, its, its_size) == 0) == same);
	/* With the right text, only the warrant itself passes. */
	check((warrant_check(&key, &shown, WARRANT_JOB, text, sizeof(text)) == 0) ==
	      !memcmp(&shown, &given, sizeof(shown)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	request_look(data, size);
	answer_look(data, size);
	warrant_look(data, size);
	return 0;
}
