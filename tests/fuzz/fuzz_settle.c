/* Two sessions on one GPU, by the daemon's settling. The processes of one write what they like into
 * their ledger, at any moment between the begin of a sample and its end, and ask what they like.
 * Then the other session's books stay what they are, memory that others use is never taken for
 * free, and no sum overflows.
 *
 * An input is a row of operations, each of 12 bytes: which one, and what it works on. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "base/macros.h"
#include "daemon/node.h"
#include "daemon/node_hooks.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/session/session_hooks.h"
#include "daemon/settle/orphans.h"
#include "daemon/settle/outside.h"
#include "daemon/settle/settle.h"

#define SLOTS 8u
#define HOSTILE 4u /* processes: two of their own, two with one PID */
#define TOTAL (80ull << 30)
#define SLICE (8ull << 30)
#define HONEST_BYTES (3ull << 30)
#define OTHERS_BYTES (5ull << 30) /* of a process in no session */
#define CONTEXT (400ull << 20)
/* No process of the machine has one of these. */
#define PID_HONEST 5000001
#define PID_OTHERS 5000002
#define PID_HOSTILE 5000003

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct node node;
static struct gpu_process figures[1 + HOSTILE]; /* two of the latter are one process */

struct side {
	struct session session;
	struct store_gpu gpu;
	int position;
	struct ledger_limits limits[2]; /* room for the array at its end */
	struct ledger_header shape;
	size_t size;
};

static struct side honest, hostile;
static struct process *processes[HOSTILE], *honest_process;

static void check(bool right)
{
	if (!right)
		abort();
}

static struct process *process_make(struct side *side, uint32_t slot, pid_t pid)
{
	struct process *p = calloc(1, sizeof(*p) + sizeof(p->gpu[0]));

	check(p);
	p->session = &side->session;
	p->slot = slot;
	p->id = (struct process_id){.pid = pid, .birth = (uint64_t)pid};
	p->next = side->session.processes;
	side->session.processes = p;
	ledger_slot_assign(&side->session.books.ledger, slot, pid, (uint64_t)pid);
	return p;
}

static void side_begin(struct side *side, const char *id)
{
	struct session *s = &side->session;

	*side = (struct side){.size = ledger_size(1, SLOTS)};
	snprintf(s->record.id, sizeof(s->record.id), "%s", id);
	s->sessions = &node.sessions;
	s->record.gpu = &side->gpu;
	s->record.gpu_count = 1;
	s->pool_gpu = &side->position;
	side->gpu.bytes = SLICE;
	s->books = BOOKS_NONE;
	s->books.limits = side->limits;
	s->books.limits->gpu_count = 1;
	s->books.limits->gpu[0].limit_bytes = SLICE;
	s->books.limits->gpu[0].context_bytes = CONTEXT;
	struct ledger_header *header = aligned_alloc(4096, (side->size + 4095) / 4096 * 4096);
	check(header);
	memset(header, 0, side->size);
	ledger_init(header, 1, SLOTS);
	side->shape = *header;
	s->books.ledger =
		(struct ledger){.limits = s->books.limits, .header = header, .shape = &side->shape};
	s->next_attached = node.sessions.attached;
	s->next = node.sessions.first;
	node.sessions.attached = node.sessions.first = s;
}

static void begin(void)
{
	static bool loop;

	if (!loop) {
		uv_loop_init(&node.loop);
		node.sessions.loop = &node.loop;
		node.sessions.pool = &node.pool;
		node.sessions.privileges = &node.privileges;
		node.sessions.context = &node;
		node.sessions.hooks = &node_session_hooks;
		settle_begin(&node.settling, &node.sessions);
		loop = true;
	}
	node.sessions.attached = node.sessions.first = NULL;
	node.sessions.dead_count = 0;
	node.pool = (struct pool){.state = POOL_READY,
				  .count = 1,
				  .mask = 1,
				  .running = true, /* so that none is started */
				  .started = 1};
	node.pool.gpu[0].sample = (struct gpu_sample){.total = TOTAL,
						      .mig = 0,
						      .processes = figures,
						      .process_count = ARRAY_SIZE(figures),
						      .sure = true};
	side_begin(&honest, "s-honest");
	side_begin(&hostile, "s-hostile");
	honest_process = process_make(&honest, 1, PID_HONEST);
	check(ledger_charge(&honest.session.books.ledger, 1, 0, HONEST_BYTES) == 0);
	figures[0] = (struct gpu_process){.pid = PID_HONEST, .bytes = HONEST_BYTES};
	figures[1] = (struct gpu_process){.pid = PID_OTHERS, .bytes = OTHERS_BYTES};
	for (uint32_t i = 0; i < HOSTILE; i++) {
		pid_t pid = PID_HOSTILE + (pid_t)MIN(i, HOSTILE - 2);

		processes[i] = process_make(&hostile, i + 1, pid);
		if (i < HOSTILE - 1)
			figures[2 + i] = (struct gpu_process){.pid = pid, .bytes = 0};
	}
}

static void side_end(struct side *side)
{
	while (side->session.processes) {
		struct process *p = side->session.processes;

		side->session.processes = p->next;
		free(p);
	}
	free(side->session.books.ledger.header);
}

static void end(void)
{
	orphans_free(&node.settling);
	uv_timer_stop(&node.settling.quiesce_timer);
	side_end(&honest);
	side_end(&hostile);
}

/* The figures that no word of the hostile ones may change. */
static void look(void)
{
	const struct ledger *l = &honest.session.books.ledger;
	const struct pool_gpu *gpu = &node.pool.gpu[0];

	check(ledger_committed(l, 0) == HONEST_BYTES && ledger_settled(l, 1, 0) == 0);
	check(ledger_kept(l, 0) == 0);
	check(session_held(&honest.session, 0, &gpu->sample) == HONEST_BYTES);
	check(gpu->outside >= OTHERS_BYTES);
	check(gpu->outside <= gpu_sample_listed(&gpu->sample) - HONEST_BYTES);
}

/* As node.c has it, but for what is written to disk. */
static void sample_end(void)
{
	struct gpu_sample *sample = &node.pool.gpu[0].sample;

	node.pool.done = node.pool.started++;
	sample->used = gpu_sample_listed(sample);
	sample->readings[0] = (struct gpu_reading){0, 0};
	sample->reading_count = 1;
	for (struct session *s = node.sessions.attached; s; s = s->next_attached)
		for (struct process *p = s->processes; p; p = p->next)
			figures_note(s, p);
	orphans_sampled(&node.settling);
	outside_compute(&node.settling);
	settle_all(&node.settling);
	look();
}

static void die(struct process *p)
{
	enum process_life next;

	if (process_life_next(p->life, PROCESS_EVENT_END, &next)) {
		p->life = next;
		node.sessions.dead_count++;
	} else if (process_life_next(p->life, PROCESS_EVENT_DISCONNECT, &next)) {
		p->life = next;
	}
}

static void operate(const uint8_t *op)
{
	struct process *p = processes[op[1] % HOSTILE];
	uint64_t word, position = (uint64_t)op[2] | (uint64_t)op[3] << 8;
	uint64_t sample = node.pool.done;

	memcpy(&word, op + 4, sizeof(word));
	switch (op[0] % 10) {
	case 0: /* anywhere */
		memcpy((char *)hostile.session.books.ledger.header +
			       position % (hostile.size / 8) * 8,
		       &word, sizeof(word));
		break;
	case 1: /* in its slot, where it counts */
		memcpy((char *)ledger_slot(&hostile.session.books.ledger, p->slot) +
			       position % (hostile.shape.slot_stride / 8) * 8,
		       &word, sizeof(word));
		break;
	case 2: /* the driver has other figures */
		figures[2 + op[1] % (HOSTILE - 1)].bytes = word % (TOTAL / 8);
		break;
	case 3:
		processes_sampling(&node.settling);
		break;
	case 4:
		sample_end();
		break;
	case 5:
		(void)process_settle(p, (enum settle_why)(op[2] % 3), 0, word);
		break;
	case 6:
		(void)process_over(p, 0);
		process_settle_end(p, process_settled(p) || !process_settle_waits(p));
		break;
	case 7:
		settle_keep(p, op[2] & 1);
		break;
	case 8:
		if (!settle_room(&hostile.session) || settle_room_known(&hostile.session, &sample))
			hostile.session.room_until_ns = 0;
		break;
	default:
		die(p);
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	begin();
	for (; size >= 12; data += 12, size -= 12)
		operate(data);
	processes_sampling(&node.settling);
	sample_end();
	end();
	return 0;
}
