#include "proto/shim.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"

/* The field is such a text with zero bytes behind it to its end. */
static bool is_text_of(const char *field, size_t size, const char *allowed)
{
	size_t length = strnlen(field, size);

	for (size_t i = 0; i < length; i++)
		if (!strchr(allowed, field[i]))
			return false;
	for (size_t i = length; i < size; i++)
		if (field[i])
			return false;
	return length < size;
}

/* As core/queue_spec.h has the names of queues. */
static bool is_queue(const char name[static SHIM_QUEUE_SIZE])
{
	static const char allowed[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

	return is_text_of(name, SHIM_QUEUE_SIZE, allowed) && *name && *name != '-' && *name != '.';
}

static bool is_pods(const struct shim_run *run)
{
	return run->pod_unit <= SHIM_UNIT_GPUS && run->pod_size <= INT64_MAX;
}

static bool is_no_pods(const struct shim_run *run)
{
	return !run->pod_key && !run->pod_size && !run->pod_unit && !run->pod_grace_s;
}

static bool is_jobs(const struct shim_run *run)
{
	return run->job && run->job <= INT64_MAX && run->array <= INT64_MAX && run->index >= -1 &&
	       run->index <= SHIM_INDEX_MAX && (run->index < 0) == !run->array &&
	       is_queue(run->queue);
}

int shim_head_check(const struct shim_head *head, size_t size)
{
	const struct shim_run *run = &head->run;
	bool right = false;

	if (size < sizeof(*head) || head->magic != SHIM_HEAD_MAGIC || !head->text_size ||
	    head->text_size > WARDEN_TEXT_MAX || head->owner_size > WARDEN_TEXT_MAX ||
	    size - sizeof(*head) != (size_t)head->text_size + head->owner_size || !run->attempt ||
	    run->daemon < 0)
		return -EINVAL;
	switch ((enum shim_task)head->kind) {
	case SHIM_TASK_JOB:
		right = is_jobs(run) && is_no_pods(run);
		break;
	case SHIM_TASK_POD:
		right = is_jobs(run) && is_pods(run) && head->owner_size;
		break;
	}
	return right ? 0 : -EINVAL;
}

int shim_go_check(const struct shim_go *go)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	const char *id = go->session;

	if (go->magic != SHIM_GO_MAGIC || go->reserved)
		return -EINVAL;
	if (!*id)
		return is_text_of(id, sizeof(go->session), "") ? 0 : -EINVAL;
	return id[0] == 's' && id[1] == '-' && id[2] &&
			       is_text_of(id + 2, sizeof(go->session) - 2, allowed)
		       ? 0
		       : -EINVAL;
}

void shim_files_remove(int dir_fd, const char *name, uint32_t files)
{
	static const char *const suffixes[] = {SHIM_RECORD,    SHIM_CID, SHIM_GIVEN_UP, SHIM_POD,
					       SHIM_POD_STATE, SHIM_LOG, SHIM_ERR};
	char path[NAME_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++)
		if (files >> i & 1 &&
		    snprintf(path, sizeof(path), "%s%s", name, suffixes[i]) < (int)sizeof(path))
			(void)unlinkat(dir_fd, path, 0);
}
