/* The head of what a shim reads, and the word that lets it go, as a broken worker may write them.
 * What passes has no byte that could be part of a path, an option or a command. */
#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "proto/shim.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int right)
{
	if (!right)
		abort();
}

/* The field is a name, and zero bytes behind it. */
static void name_check(const char *field, size_t size, const char *more)
{
	size_t length = strnlen(field, size);

	check(length < size && *field != '-' && *field != '.');
	for (size_t i = 0; i < size; i++)
		check(i < length ? isalnum((unsigned char)field[i]) || strchr(more, field[i])
				 : !field[i]);
}

/* The input is laid over a head that is right; its first two bytes are the size of what is behind
 * that. */
static void head_look(const uint8_t *data, size_t size)
{
	struct shim_head head = {.magic = SHIM_HEAD_MAGIC,
				 .kind = SHIM_TASK_JOB,
				 .text_size = 2,
				 .run = {.job = 1, .index = -1, .attempt = 1, .queue = "q"}};
	const struct shim_run *run = &head.run;

	check(shim_head_check(&head, sizeof(head) + 2) == 0);
	check(shim_head_check(&head, sizeof(head) + 3) != 0);
	if (size < 2)
		return;
	size_t behind = data[0] | (size_t)data[1] << 8;
	memcpy(&head, data + 2, MIN(size - 2, sizeof(head)));
	if (shim_head_check(&head, sizeof(head) + behind) != 0)
		return;
	check((size_t)head.text_size + head.owner_size == behind && head.text_size);
	check(run->attempt && run->job <= INT64_MAX && run->index >= -1);
	check(run->job);
	check(head.kind == SHIM_TASK_POD || !(run->pod_key | run->pod_size | run->pod_unit));
	name_check(run->queue, sizeof(run->queue), "._-");
}

static void go_look(const uint8_t *data, size_t size)
{
	struct shim_go go = {.magic = SHIM_GO_MAGIC};

	check(shim_go_check(&go) == 0);
	memcpy(&go, data, MIN(size, sizeof(go)));
	if (shim_go_check(&go) == 0)
		name_check(go.session, sizeof(go.session), "-");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	head_look(data, size);
	go_look(data, size);
	return 0;
}
