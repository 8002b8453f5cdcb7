/* The host behind its protocol, without sockets: what clients may send, and what must be survived.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/macros.h"
#include "host/command.h"
#include "host/host.h"
#include "host/mig_wire.h"

#define MS 1000000ull

struct rig {
	struct host host;
	struct exchange x;
	struct process *process;
};

static int rig_make(void **state)
{
	static struct spec spec;
	struct rig *r = calloc(1, sizeof(*r));

	assert_int_equal(spec_parse("h100-80gb:2,a100-40gb+mig", &spec, NULL), 0);
	assert_int_equal(host_init(&r->host, &spec, spec_driver_find("550", NULL), 0), 0);
	*state = r;
	return 0;
}

static int rig_free(void **state)
{
	struct rig *r = *state;

	host_finish(&r->host);
	free(r);
	return 0;
}

/* False: the connection would be closed. */
static bool send_bytes(struct rig *r, struct process *p, const void *bytes, size_t size)
{
	r->x.process = p;
	r->x.request = bytes;
	r->x.size = size;
	r->x.fd = -1;
	return command_run(&r->host, &r->x);
}

static struct process *greet(struct rig *r, enum wire_role role)
{
	struct process *p = host_process_add(&r->host, getpid(), getuid());
	struct wire_hello hello = {.head.type = WIRE_HELLO,
				   .magic = WIRE_MAGIC,
				   .version = WIRE_VERSION,
				   .role = role};

	assert_non_null(p);
	assert_true(send_bytes(r, p, &hello, sizeof(hello)));
	assert_int_equal(r->x.reply.head.status, 0);
	return p;
}

static int reserve(struct rig *r, struct process *p, wire_device device, uint64_t bytes)
{
	struct wire_memory_reserve m = {
		.head.type = WIRE_MEMORY_RESERVE, .device = device, .kind = 1, .bytes = bytes};

	assert_true(send_bytes(r, p, &m, sizeof(m)));
	return r->x.reply.head.status;
}

static bool submit(struct rig *r, struct process *p, struct wire_item item)
{
	union {
		struct wire_submit submit;
		uint8_t bytes[sizeof(struct wire_submit) + sizeof(struct wire_item)];
	} m = {.submit.head.type = WIRE_WORK_SUBMIT, .submit.count = 1};

	m.submit.item[0] = item;
	return send_bytes(r, p, &m, sizeof(m));
}

static void greeting_comes_first(void **state)
{
	struct rig *r = *state;
	struct process *p = host_process_add(&r->host, getpid(), getuid());
	struct wire_memory_reserve m = {.head.type = WIRE_MEMORY_RESERVE, .bytes = 1};
	struct wire_hello hello = {
		.head.type = WIRE_HELLO, .magic = WIRE_MAGIC, .version = 99, .role = 1};

	assert_false(send_bytes(r, p, &m, sizeof(m)));
	assert_false(send_bytes(r, p, &hello, sizeof(hello)));
	hello.version = WIRE_VERSION;
	hello.role = 77;
	assert_false(send_bytes(r, p, &hello, sizeof(hello)));
	hello.role = WIRE_ROLE_NVML;
	assert_false(send_bytes(r, p, &hello, sizeof(hello) - 1));
	assert_true(send_bytes(r, p, &hello, sizeof(hello)));
	assert_false(send_bytes(r, p, &hello, sizeof(hello))); /* once */
	assert_false(send_bytes(r, p, &m, sizeof(m)));         /* NVML holds no memory */
}

static void mig_gpus_are_not_whole(void **state)
{
	struct rig *r = *state;
	struct process *p = greet(r, WIRE_ROLE_CUDA);

	assert_int_equal(reserve(r, p, 0, 5), 0);
	assert_int_equal(reserve(r, p, 2, 5), -ENODEV);
	assert_int_equal(reserve(r, p, 3, 5), -ENODEV);
	assert_int_equal(reserve(r, p, WIRE_DEVICE_MIG(2, 1, 0), 5), -ENODEV);
	assert_non_null(
		host_part_add(&r->host, WIRE_DEVICE_MIG(2, 1, WIRE_NO_INSTANCE), 100, NULL));
	struct part *gi = host_part_find(&r->host, WIRE_DEVICE_MIG(2, 1, WIRE_NO_INSTANCE));
	struct part *ci = host_part_add(&r->host, WIRE_DEVICE_MIG(2, 1, 0), 0, gi);
	assert_int_equal(reserve(r, p, WIRE_DEVICE_MIG(2, 1, 0), 60), 0);
	assert_int_equal(reserve(r, p, WIRE_DEVICE_MIG(2, 1, 0), 60), -ENOMEM);
	assert_int_equal(gi->own_space.used, 60);
	assert_int_equal(r->host.page->gpu[2].memory_used, 60);
	assert_int_equal(host_part_remove(&r->host, gi), -EBUSY);
	host_process_remove(p);
	assert_int_equal(host_part_remove(&r->host, ci), 0);
	assert_int_equal(host_part_remove(&r->host, gi), 0);
}

static void work_is_published(void **state)
{
	struct rig *r = *state;
	struct process *p = greet(r, WIRE_ROLE_CUDA);
	struct wire_item item = {.queue = 9,
				 .ns = 3 * MS,
				 .engine = WIRE_ENGINE_COMPUTE,
				 .flags = WIRE_ITEM_LAUNCH,
				 .stamp_start = 1,
				 .stamp_done = 2};

	host_tick(&r->host, 10 * MS);
	assert_true(submit(r, p, item));
	assert_int_equal(host_wake(&r->host), 13 * MS);
	host_publish(&r->host);
	assert_int_equal(p->progress->queue[9].started, 1);
	assert_int_equal(p->progress->queue[9].done, 0);
	host_tick(&r->host, 20 * MS);
	host_publish(&r->host);
	assert_int_equal(p->progress->queue[9].done, 1);
	assert_int_equal(p->progress->stamp[1], 10 * MS);
	assert_int_equal(p->progress->stamp[2], 13 * MS);
	assert_int_equal(host_wake(&r->host), UINT64_MAX);

	struct wire_cancel cancel = {.head.type = WIRE_WORK_CANCEL, .queue = 9};
	assert_true(send_bytes(r, p, &cancel, sizeof(cancel)));
	assert_int_equal(p->progress->queue[9].done, 0);
}

static void bad_work_ends_the_connection(void **state)
{
	struct rig *r = *state;
	struct process *p = greet(r, WIRE_ROLE_CUDA);
	struct wire_item good = {.engine = WIRE_ENGINE_COMPUTE, .ns = 5}, bad;

	assert_true(submit(r, p, good));
	bad = good;
	bad.queue = WIRE_QUEUES_MAX;
	assert_false(submit(r, p, bad));
	bad = good;
	bad.engine = WIRE_ENGINES;
	assert_false(submit(r, p, bad));
	bad = good;
	bad.device = 60;
	assert_false(submit(r, p, bad));
	bad = good;
	bad.device = 1; /* the queue is the other GPU's */
	assert_false(submit(r, p, bad));
	bad = good;
	bad.ns = UINT64_MAX;
	assert_false(submit(r, p, bad));
	struct wire_submit lie = {.head.type = WIRE_WORK_SUBMIT, .count = 3};
	assert_false(send_bytes(r, p, &lie, sizeof(lie)));
	lie.count = UINT32_MAX;
	assert_false(send_bytes(r, p, &lie, sizeof(lie)));
	for (uint32_t i = 1; i < WIRE_QUEUE_ITEMS_MAX; i++)
		assert_true(submit(r, p, good));
	assert_false(submit(r, p, good)); /* more than a queue holds */
}

/* Any bytes whatever, from connections of any role: the host stands, and its books add up. */
/* A reset of a GPU ended it. */
static void process_ended(void *context, struct process *p)
{
	struct process **all = context;

	for (int role = 0; role < 3; role++)
		if (all[role] == p)
			all[role] = NULL;
	host_process_remove(p);
}

static void any_bytes(void **state)
{
	struct rig *r = *state;
	static struct process *p[3];
	static uint64_t message[512];
	uint8_t *bytes = (uint8_t *)message;

	srand(5);
	for (int role = 0; role < 3; role++)
		p[role] = greet(r, role + 1);
	r->host.process_end = process_ended;
	r->host.watch_context = p;
	for (int i = 0; i < 60000; i++) {
		size_t size = (size_t)rand() % 200;
		int role = rand() % 3;

		for (size_t k = 0; k < 200; k++)
			bytes[k] = (uint8_t)(rand() % 8 ? 0 : rand());
		message[0] = (uint64_t)(rand() % 130);
		if (rand() % 2)
			size = (size_t[]){8, 16, 24, 32, 40, 72, 80, 144, 160}[rand() % 9];
		if (!p[role])
			p[role] = greet(r, role + 1);
		if (!send_bytes(r, p[role], message, size)) {
			host_process_remove(p[role]);
			p[role] = greet(r, role + 1);
		} else if (r->x.reply_fd_owned) {
			close(r->x.reply_fd[0]);
		}
		host_tick(&r->host, (uint64_t)i * 1000);
		host_publish(&r->host);
		assert_true(host_wake(&r->host) > r->host.now);
	}
	for (int role = 0; role < 3; role++)
		if (p[role])
			host_process_remove(p[role]);
	for (uint32_t i = 0; i < r->host.gpu_count; i++)
		assert_int_equal(host_gpu_used(&r->host, i), 0);
}

static int create(struct rig *r, struct process *p, enum wire_mig_type type, wire_device device,
		  uint32_t profile, uint32_t *ret_id)
{
	struct wire_mig_create m = {
		.head.type = type, .device = device, .profile_id = profile, .start = MIG_ANYWHERE};

	assert_true(send_bytes(r, p, &m, sizeof(m)));
	*ret_id = ((struct wire_mig_reply *)&r->x.reply)->id;
	return r->x.reply.head.status;
}

static int reset(struct rig *r, struct process *tool, uint32_t gpu, bool reboot)
{
	struct wire_gpu_reset m = {.head.type = WIRE_GPU_RESET, .device = gpu, .reboot = reboot};

	assert_true(send_bytes(r, tool, &m, sizeof(m)));
	return r->x.reply.head.status;
}

/* The process that used the GPU is gone, and so is its memory; others, and their GPUs, are not
 * touched. */
static void a_reset_takes_processes_memory_and_instances(void **state)
{
	struct rig *r = *state;
	static struct process *all[3];
	struct process *nvml = greet(r, WIRE_ROLE_NVML), *tool = greet(r, WIRE_ROLE_TOOL);
	struct process *elsewhere;
	uint32_t gi, ci;

	all[0] = greet(r, WIRE_ROLE_CUDA);
	all[1] = elsewhere = greet(r, WIRE_ROLE_CUDA);
	r->host.process_end = process_ended;
	r->host.watch_context = all;
	assert_int_equal(create(r, nvml, WIRE_MIG_GI_CREATE, 2, 9, &gi), 0);
	assert_int_equal(create(r, nvml, WIRE_MIG_CI_CREATE,
				WIRE_DEVICE_MIG(2, gi, WIRE_NO_INSTANCE), 2, &ci),
			 0);
	assert_int_equal(reserve(r, all[0], WIRE_DEVICE_MIG(2, gi, ci), MIB(600)), 0);
	assert_int_equal(reserve(r, elsewhere, 0, MIB(600)), 0);
	assert_int_equal(reset(r, tool, 7, false), -ENODEV);
	assert_int_equal(reset(r, tool, 2, false), 0);
	assert_null(all[0]);
	assert_ptr_equal(all[1], elsewhere);
	assert_int_equal(host_gpu_used(&r->host, 2), 0);
	assert_int_equal(host_gpu_used(&r->host, 0), MIB(600));
	assert_null(host_part_find(&r->host, WIRE_DEVICE_MIG(2, gi, WIRE_NO_INSTANCE)));
	/* Ampere keeps its mode, even at a reboot; and the GPU can be used again. */
	assert_int_equal(reset(r, tool, 2, true), 0);
	assert_null(all[1]);
	assert_int_equal(create(r, nvml, WIRE_MIG_GI_CREATE, 2, 0, &gi), 0);
}

static void a_reboot_turns_the_mode_of_newer_boards_off(void **state)
{
	struct rig *r = *state;
	struct process *nvml = greet(r, WIRE_ROLE_NVML), *tool = greet(r, WIRE_ROLE_TOOL);
	struct wire_mig_set_mode on = {.head.type = WIRE_MIG_SET_MODE, .device = 0, .enable = 1};

	assert_true(send_bytes(r, nvml, &on, sizeof(on)));
	assert_int_equal(r->x.reply.head.status, 0);
	assert_int_equal(reset(r, tool, 0, false), 0);
	assert_true(r->host.page->gpu[0].flags & WIRE_GPU_MIG);
	assert_int_equal(reset(r, tool, 0, true), 0);
	assert_false(r->host.page->gpu[0].flags & (WIRE_GPU_MIG | WIRE_GPU_MIG_PENDING));
}

static void specs(void **state)
{
	static const char *const bad[] = {"",
					  ",",
					  "h100",
					  "h100-80gb:",
					  "h100-80gb:-1",
					  "h100-80gb:1e1",
					  "h100-80gb:064x",
					  "h100-80gb +mig",
					  "+mig",
					  "t4-16gb,",
					  "h100-80gb+mig:2",
					  "h100-80gb++mig"};
	struct spec spec = {.gpu_count = 77};
	struct error err;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		err = (struct error){0};
		if (spec_parse(bad[i], &spec, &err) == 0)
			fail_msg("'%s' accepted", bad[i]);
		assert_int_equal(err.code, EXIT_CODE_USAGE);
		assert_true(err.message[0] && err.hint[0]);
		assert_int_equal(spec.gpu_count, 77);
	}
	assert_int_equal(spec_parse("h100-80gb:2,a100-40gb:1+mig,t4-16gb:61", &spec, NULL), 0);
	assert_int_equal(spec.gpu_count, 64);
	assert_true(spec.gpu[2].mig && !spec.gpu[1].mig);
	assert_null(spec_driver_find("540", &err));
	assert_int_equal(spec_driver_find("580", NULL)->cuda_version, 13000);
}

int main(void)
{
#define RIGGED(f) cmocka_unit_test_setup_teardown(f, rig_make, rig_free)
	const struct CMUnitTest tests[] = {
		RIGGED(greeting_comes_first),
		RIGGED(mig_gpus_are_not_whole),
		RIGGED(work_is_published),
		RIGGED(bad_work_ends_the_connection),
		RIGGED(any_bytes),
		RIGGED(a_reset_takes_processes_memory_and_instances),
		RIGGED(a_reboot_turns_the_mode_of_newer_boards_off),
		cmocka_unit_test(specs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
