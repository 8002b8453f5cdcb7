/* Runs a grid: blocks become resident, their warps take turns. */
#include <errno.h>
#include <fenv.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/macros.h"
#include "ptx/exec/exec.h"

#define THREADS_MAX 1024
#define STACK_BYTES_DEFAULT 1024
/* Warp instructions that a warp runs before the next one's turn. */
#define TURN 4096
/* Between two calls of the caller's checkpoint. */
#define CHECKPOINT_INTERVAL 65536
/* A grid that runs its blocks one after another gets another resident block after so many
 * instructions without one ending: those that run may be waiting for it. */
#define PATIENCE 20000000
/* Reads of a clock, or of one word with one value, before a warp counts as waiting; then so many
 * between two pauses. */
#define SPINS_IDLE 1024
#define SPINS_AGAIN 64
#define SPINS_AGAIN_CLOCK 8
#define PAUSE_NS_MAX 1000000
/* How long kernels pause that poll memory, and those that poll a clock. The clock moves faster the
 * longer they do, so that few polls are enough for any wait and its end is met closely. */
#define WATCH_NS 50000
#define SPIN_NS_MIN 1000
#define SPIN_NS_MAX 20000
#define SPIN_PART 64

/* --- functions for handlers */

static uint64_t clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* Adds what the running warp did since the last time. */
static void launch_count(struct launch *launch)
{
	struct warp *warp = launch->running;

	if (!warp)
		return;
	launch->result->warp_instructions += warp->counted - warp->left;
	warp->counted = warp->left;
}

uint64_t launch_now(struct launch *launch)
{
	const struct ptx_launch *given = launch->given;

	launch_count(launch);
	return given->callbacks->now ? given->callbacks->now(given->user) : clock_ns();
}

uint64_t launch_elapsed(struct launch *launch)
{
	const struct ptx_launch *given = launch->given;

	if (!given->callbacks->elapsed)
		return launch_now(launch);
	launch_count(launch);
	return given->callbacks->elapsed(given->user);
}

void launch_meet(struct launch *launch)
{
	const struct ptx_launch *given = launch->given;

	launch->paused_ns = 0;
	launch_count(launch);
	if (given->callbacks->meet)
		given->callbacks->meet(given->user);
}

void warp_fault(struct warp *warp, enum ptx_fault_kind kind, uint64_t address, unsigned lane)
{
	struct launch *launch = warp->launch;
	struct ptx_result *result = launch->result;

	warp->stop = launch->stop = true;
	if (launch->status != 0)
		return;
	launch->status = -EFAULT;
	result->fault = kind;
	result->fault_address = address;
	for (unsigned i = 0; i < 3; i++) {
		result->fault_block[i] = warp->block->id[i];
		result->fault_thread[i] = warp->tid[i][lane];
	}
	result->fault_function = warp->frames[warp->frame_count - 1].function->name;
	result->fault_line = warp->code[warp->pc ? warp->pc - 1 : 0].line;
}

void warp_out_of_memory(struct warp *warp)
{
	warp->stop = warp->launch->stop = true;
	if (warp->launch->status == 0)
		warp->launch->status = -ENOMEM;
}

void warp_polled(struct warp *warp, uint32_t weight)
{
	warp->spins += weight;
	if (warp->spins < SPINS_IDLE)
		return;
	warp->spins = SPINS_IDLE - (warp->watches ? SPINS_AGAIN : SPINS_AGAIN_CLOCK);
	warp->idle = true;
	warp->stop = true;
}

void warp_polled_value(struct warp *warp, uint64_t place, uint64_t value)
{
	if (warp->polled_place == place && warp->polled_value == value) {
		warp->watches = true;
		warp_polled(warp, 1);
		return;
	}
	warp->polled_place = place;
	warp->polled_value = value;
	warp->spins = 0;
	warp->idle = false;
	warp->watches = false;
}

/* --- blocks */

/* The memory of a block of so many warps, if that is not more memory than this. */
#define SPARE_WARPS_MAX 4u
#define SPARE_BYTES_MAX 65536u

struct ptx_spare {
	struct block block; /* no warps: there is none */
	uint32_t warps, shared_bytes, local_bytes;
};

static void block_free(struct block *block, uint32_t warps)
{
	for (uint32_t i = 0; block->warps && i < warps; i++) {
		free(block->warps[i].registers);
		free(block->warps[i].frames);
		free(block->warps[i].simt);
	}
	free(block->warps);
	free(block->shared);
	free(block->local);
	*block = (struct block){0};
}

void ptx_spare_free(struct ptx_spare *spare)
{
	if (spare)
		block_free(&spare->block, spare->warps);
	free(spare);
}

static bool spare_is_of(const struct ptx_spare *spare, const struct launch *launch)
{
	return spare && spare->block.warps && spare->warps == launch->warps_per_block &&
	       spare->shared_bytes == launch->shared_bytes &&
	       spare->local_bytes == launch->local_bytes;
}

/* Leaves it for the next launch. False: that is to have none. */
static bool spare_keep(const struct launch *launch, struct block *block)
{
	struct ptx_spare **spare = launch->given->spare;

	if (!spare || launch->stop || launch->status || !block->warps || !block->shared ||
	    !block->local || launch->warps_per_block > SPARE_WARPS_MAX ||
	    launch->shared_bytes + launch->local_bytes > SPARE_BYTES_MAX)
		return false;
	if (!*spare)
		*spare = calloc(1, sizeof(**spare));
	if (!*spare || (*spare)->block.warps)
		return false;
	**spare = (struct ptx_spare){.block = *block,
				     .warps = launch->warps_per_block,
				     .shared_bytes = launch->shared_bytes,
				     .local_bytes = launch->local_bytes};
	return true;
}

static int block_allocate(struct launch *launch, struct block *block)
{
	struct ptx_spare *spare = launch->given->spare ? *launch->given->spare : NULL;
	size_t lanes = (size_t)launch->warps_per_block * WARP_LANES;
	size_t local = ALIGN_UP(lanes * launch->local_bytes + 1, (size_t)64);

	if (spare_is_of(spare, launch)) {
		*block = spare->block;
		spare->block = (struct block){0};
	} else {
		block->warps = calloc(launch->warps_per_block, sizeof(*block->warps));
		block->shared =
			aligned_alloc(64, ALIGN_UP((size_t)launch->shared_bytes + 1, (size_t)64));
		block->local = aligned_alloc(64, local);
	}
	block->launch = launch;
	if (!block->warps || !block->shared || !block->local)
		return -ENOMEM;
	memset(block->local, 0, local);
	for (uint32_t i = 0; i < launch->warps_per_block; i++) {
		struct warp *warp = &block->warps[i];

		warp->launch = launch;
		warp->block = block;
		warp->number = i;
		warp->code = launch->module->code;
		warp->extra = launch->module->extra;
		warp->base[1] = launch->module->constants.bytes;
		warp->local = block->local + (size_t)i * WARP_LANES * launch->local_bytes;
	}
	return 0;
}

static int warp_begin(struct warp *warp)
{
	const uint32_t *dims = warp->launch->given->block;
	uint32_t first = warp->number * WARP_LANES;
	uint32_t tid[3] = {first % dims[0], first / dims[0] % dims[1], first / dims[0] / dims[1]};

	warp->lanes = 0;
	for (unsigned l = 0; l < WARP_LANES; l++) {
		if (first + l < warp->launch->threads)
			warp->lanes |= 1u << l;
		for (unsigned i = 0; i < 3; i++)
			warp->tid[i][l] = tid[i];
		if (++tid[0] < dims[0])
			continue;
		tid[0] = 0;
		if (++tid[1] < dims[1])
			continue;
		tid[1] = 0;
		tid[2]++;
	}
	warp->live = warp->lanes;
	warp->state = WARP_READY;
	warp->idle = false;
	warp->watches = false;
	warp->spins = 0;
	warp->polled_place = 0;
	warp->gathered = 0;
	return warp_start(warp, warp->launch->kernel);
}

/* The block of the grid with this number (x runs fastest) starts in `block`. */
static int block_begin(struct launch *launch, struct block *block, uint64_t number)
{
	const uint32_t *grid = launch->given->grid;
	int result = block->warps ? 0 : block_allocate(launch, block);

	if (result < 0)
		return result;
	block->id[0] = (uint32_t)(number % grid[0]);
	block->id[1] = (uint32_t)(number / grid[0] % grid[1]);
	block->id[2] = (uint32_t)(number / grid[0] / grid[1]);
	memset(block->shared, 0, (size_t)launch->shared_bytes + 1);
	for (uint32_t i = 0; i <= BARRIER_COUNT; i++)
		block->barriers[i] = (struct barrier){.all = UINT32_MAX};
	block->warps_left = launch->warps_per_block;
	block->running = true;
	for (uint32_t i = 0; i < launch->warps_per_block && result == 0; i++)
		result = warp_begin(&block->warps[i]);
	return result;
}

/* --- turns */

/* Runs the warp until it waits, ends, or its turn is over; returns the instructions it ran. */
static uint32_t warp_run(struct warp *warp)
{
	warp->launch->running = warp;
	warp->counted = warp->left = TURN;
	warp->stop = false;
	while (warp->left > 0 && !warp->stop) {
		const struct insn *insn = &warp->code[warp->pc++];
		uint32_t mask = warp->active;

		warp->left--;
		if (insn->guard) {
			uint32_t bits = *(const uint32_t *)(warp->base[0] + (insn->guard & ~1u));

			mask &= insn->guard & 1 ? ~bits : bits;
			if (!mask)
				continue;
		}
		insn->run(warp, insn, mask);
	}
	launch_count(warp->launch);
	return TURN - warp->left;
}

/* The outcome of one round of turns. */
struct round {
	uint32_t instructions;
	bool progress;
	bool waiting;  /* some warp polls or sleeps */
	bool spins;    /* some warp polls ... */
	bool watches;  /* ... memory */
	uint64_t wake; /* the earliest, ns; 0: none sleeps */
	uint64_t now;  /* 0: not read yet */
	uint32_t blocks_done;
};

static bool warp_awake(struct warp *warp, struct round *round)
{
	if (round->now == 0)
		round->now = launch_elapsed(warp->launch);
	if (round->now >= warp->wake) {
		warp->state = WARP_READY;
		return true;
	}
	round->waiting = true;
	round->watches |= warp->watches;
	if (round->wake == 0 || warp->wake < round->wake)
		round->wake = warp->wake;
	return false;
}

static void warp_turn(struct warp *warp, struct round *round)
{
	if (warp->state == WARP_SLEEPING && !warp_awake(warp, round))
		return;
	if (warp->state != WARP_READY)
		return;
	round->instructions += warp_run(warp);
	if (warp->state == WARP_DONE)
		block_warp_done(warp->block);
	if (warp->state == WARP_READY && warp->idle) {
		round->waiting = true;
		round->spins = true;
		round->watches |= warp->watches;
		warp_rotate(warp);
	} else if (warp->state == WARP_SLEEPING) {
		warp_rotate(warp);
		round->waiting = true;
		round->watches |= warp->watches;
		if (round->wake == 0 || warp->wake < round->wake)
			round->wake = warp->wake;
	} else {
		round->progress = true;
	}
}

static void block_turn(struct block *block, struct round *round)
{
	for (uint32_t i = 0; i < block->launch->warps_per_block && !block->launch->stop; i++)
		warp_turn(&block->warps[i], round);
	if (block->warps_left == 0) {
		block->running = false;
		round->blocks_done++;
	}
}

/* For how long nothing can change for those that poll. */
static uint64_t poll_ns(struct launch *launch, const struct round *round, uint64_t now)
{
	if (round->watches)
		return WATCH_NS;
	if (!launch->spinning_since)
		launch->spinning_since = now;
	uint64_t ns = (now - launch->spinning_since) / SPIN_PART;
	return MIN(MAX(ns, (uint64_t)SPIN_NS_MIN), (uint64_t)SPIN_NS_MAX);
}

static void pause_launch(struct launch *launch, const struct round *round)
{
	const struct ptx_launch *given = launch->given;
	uint64_t now = launch_elapsed(launch), ns = UINT64_MAX;

	if (round->wake)
		ns = round->wake > now ? round->wake - now : 0;
	if (round->spins)
		ns = MIN(ns, poll_ns(launch, round, now));
	if (ns == 0)
		return;
	launch->paused_ns += ns;
	if (given->callbacks->pause) {
		given->callbacks->pause(given->user, ns, round->watches);
		return;
	}
	nanosleep(&(struct timespec){.tv_nsec = (long)MIN(ns, (uint64_t)PAUSE_NS_MAX)}, NULL);
}

/* All warps wait at barriers that nobody can complete. */
static void report_deadlock(struct block *blocks, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		for (uint32_t k = 0; blocks[i].running && k < blocks[i].launch->warps_per_block;
		     k++) {
			struct warp *warp = &blocks[i].warps[k];

			if (warp->state == WARP_BARRIER) {
				warp_fault(warp, PTX_FAULT_DEADLOCK, 0,
					   (unsigned)__builtin_ctz(warp->live | 1u << 31));
				return;
			}
		}
	}
}

/* The blocks of a grid that are resident, and those to come. */
struct residents {
	struct launch *launch;
	struct block *blocks;
	uint32_t count, room; /* resident; allocated */
	uint32_t wanted;      /* to be resident at once */
	uint64_t next, total; /* blocks of the grid */
	uint64_t checkpoint;  /* instructions at which it is due */
	uint64_t patience;    /* instructions at which another block becomes resident */
};

/* Fills the places that are free. */
static int residents_fill(struct residents *r)
{
	for (uint32_t i = 0; i < r->wanted && r->next < r->total; i++) {
		int result;

		if (i < r->count && r->blocks[i].running)
			continue;
		result = block_begin(r->launch, &r->blocks[i], r->next++);
		if (result < 0)
			return result;
		r->count = MAX(r->count, i + 1);
	}
	return 0;
}

/* One more place; blocks point to each other's warps nowhere, but warps to their block. */
static int residents_widen(struct residents *r)
{
	if (r->wanted == r->room) {
		uint32_t room = 2 * r->room;
		struct block *grown = realloc(r->blocks, room * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		memset(grown + r->room, 0, (room - r->room) * sizeof(*grown));
		r->blocks = grown;
		r->room = room;
		for (uint32_t i = 0; i < r->count; i++) {
			for (uint32_t k = 0; k < r->launch->warps_per_block; k++)
				grown[i].warps[k].block = &grown[i];
		}
	}
	r->wanted++;
	return 0;
}

static int checkpoint_when_due(struct residents *r, bool now)
{
	const struct ptx_launch *given = r->launch->given;
	uint64_t count = r->launch->result->warp_instructions;

	if (!given->callbacks->checkpoint || (!now && count < r->checkpoint))
		return 0;
	r->checkpoint = count + CHECKPOINT_INTERVAL;
	return given->callbacks->checkpoint(given->user, count) ? -ECANCELED : 0;
}

/* After a round in which nothing moved. */
static int residents_stuck(struct residents *r, const struct round *round)
{
	if (r->next < r->total)
		return residents_widen(r);
	if (!round->waiting) {
		report_deadlock(r->blocks, r->count);
		return r->launch->status;
	}
	pause_launch(r->launch, round);
	return checkpoint_when_due(r, true);
}

static int residents_round(struct residents *r)
{
	struct launch *launch = r->launch;
	struct round round = {0};
	int result = residents_fill(r);

	if (result < 0)
		return result;
	for (uint32_t i = 0; i < r->count && !launch->stop; i++) {
		if (r->blocks[i].running)
			block_turn(&r->blocks[i], &round);
	}
	if (launch->stop)
		return launch->status;
	if (round.blocks_done > 0 || round.instructions == 0)
		r->patience = launch->result->warp_instructions + PATIENCE;
	if (!round.progress && round.blocks_done == 0)
		return residents_stuck(r, &round);
	launch->spinning_since = 0;
	if (launch->result->warp_instructions >= r->patience && r->next < r->total) {
		r->patience += PATIENCE;
		result = residents_widen(r);
	}
	return result < 0 ? result : checkpoint_when_due(r, false);
}

static bool residents_left(const struct residents *r)
{
	if (r->next < r->total)
		return true;
	for (uint32_t i = 0; i < r->count; i++) {
		if (r->blocks[i].running)
			return true;
	}
	return false;
}

static int run_grid(struct launch *launch)
{
	const uint32_t *grid = launch->given->grid;
	uint64_t total = (uint64_t)grid[0] * grid[1] * grid[2];
	struct residents r = {
		.launch = launch,
		.wanted = (uint32_t)MIN((uint64_t)MAX(launch->given->resident_blocks, 1u), total),
		.total = total,
		.checkpoint = CHECKPOINT_INTERVAL,
		.patience = PATIENCE,
	};
	int result = 0;

	r.room = r.wanted;
	r.blocks = calloc(r.room, sizeof(*r.blocks));
	if (!r.blocks)
		return -ENOMEM;
	while (result == 0 && residents_left(&r))
		result = residents_round(&r);
	for (uint32_t i = 0; i < r.room; i++) {
		if (r.blocks[i].launch && !spare_keep(launch, &r.blocks[i]))
			block_free(&r.blocks[i], launch->warps_per_block);
	}
	free(r.blocks);
	return result;
}

/* --- the launch */

static bool dims_valid(const struct ptx_launch *given, const struct ptx_kernel_info *info)
{
	uint64_t threads = 1;

	for (unsigned i = 0; i < 3; i++) {
		if (given->grid[i] == 0 || given->block[i] == 0 || given->block[i] > THREADS_MAX)
			return false;
		if (info->reqntid[0] && info->reqntid[i] != given->block[i])
			return false;
		threads *= given->block[i];
	}
	/* The product of a grid's sides stays below 2^64. */
	if (given->grid[1] > UINT16_MAX || given->grid[2] > UINT16_MAX)
		return false;
	return threads <= THREADS_MAX;
}

static void size_launch(struct launch *launch)
{
	const struct ptx_launch *given = launch->given;
	const struct function *kernel = launch->kernel;
	bool calls = kernel->references || kernel->calls_pointers;
	uint32_t stack = given->stack_bytes ? given->stack_bytes : STACK_BYTES_DEFAULT;
	uint32_t local = ALIGN_UP(MAX(kernel->info.local_bytes, 16u), 16u);

	launch->threads = given->block[0] * given->block[1] * given->block[2];
	launch->warps_per_block = (launch->threads + WARP_LANES - 1) / WARP_LANES;
	launch->shared_bytes = given->shared_bytes
				       ? launch->module->dynamic_shared + given->shared_bytes
				       : kernel->info.shared_bytes;
	launch->param_bytes = kernel->info.param_bytes;
	/* A kernel that refers to functions may call through pointers, or recurse. */
	launch->local_bytes = local + (calls ? ALIGN_UP(stack, 16u) : 0);
}

static int copy_params(struct launch *launch)
{
	launch->params =
		launch->param_bytes < sizeof(launch->few_params)
			? launch->few_params
			: aligned_alloc(64, ALIGN_UP((size_t)launch->param_bytes + 1, (size_t)64));
	if (!launch->params)
		return -ENOMEM;
	if (launch->param_bytes > 0)
		memcpy(launch->params, launch->given->params, launch->param_bytes);
	return 0;
}

int ptx_launch_run(const struct ptx_launch *launch, struct ptx_result *ret_result)
{
	static struct ptx_range nowhere;
	const struct ptx_module *module = launch->module;
	struct launch state = {.given = launch, .module = module, .result = ret_result};
	fenv_t environment;
	int result;

	*ret_result = (struct ptx_result){0};
	if (!module->bound || launch->kernel >= module->kernel_count)
		return -EINVAL;
	state.kernel = module->kernels[launch->kernel];
	state.range = &nowhere;
	if (!dims_valid(launch, &state.kernel->info) ||
	    launch->param_bytes < state.kernel->info.param_bytes)
		return -EINVAL;
	size_launch(&state);
	result = copy_params(&state);
	if (result < 0)
		return result;
	state.started = launch_now(&state);
	fegetenv(&environment);
	fesetenv(FE_DFL_ENV);
	result = run_grid(&state);
	fesetenv(&environment);
	if (state.params != state.few_params)
		free(state.params);
	return result;
}

const char *ptx_fault_text(enum ptx_fault_kind kind)
{
	static const char *const texts[] = {
		[PTX_FAULT_NONE] = "none",
		[PTX_FAULT_ILLEGAL_ADDRESS] = "illegal address",
		[PTX_FAULT_MISALIGNED_ADDRESS] = "misaligned address",
		[PTX_FAULT_READ_ONLY] = "store to read-only memory",
		[PTX_FAULT_STACK] = "stack overflow",
		[PTX_FAULT_TRAP] = "trap",
		[PTX_FAULT_ASSERT] = "assertion failed",
		[PTX_FAULT_ILLEGAL_CALL] = "illegal call",
		[PTX_FAULT_DEADLOCK] = "deadlock at a barrier",
	};

	return (size_t)kind < ARRAY_SIZE(texts) ? texts[kind] : "unknown";
}
