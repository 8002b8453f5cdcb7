/* Shared by the tests of the MIG policy: dies of the simulator's models, and pools of them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/mig.h"
#include "mig_boards.h"

#define TEST_GPUS_MAX 16u

struct test_die {
	struct board_profile board[BOARD_PROFILES_MAX];
	size_t count;
};

/* A pool with its instances. */
struct test_pool {
	struct mig_pool pool;
	struct mig_die dies[MIG_DIES_MAX];
	struct mig_gpu gpus[TEST_GPUS_MAX];
	struct mig_instance instances[TEST_GPUS_MAX][MIG_INSTANCES_MAX];
	uint32_t refused[TEST_GPUS_MAX][MIG_PROFILES_MAX];
	struct test_die boards[MIG_DIES_MAX];
};

static inline void test_die_fill(struct mig_die *die, const struct test_die *board)
{
	die->profile_count = (uint32_t)board->count;
	for (size_t i = 0; i < board->count; i++) {
		const struct board_profile *b = &board->board[i];

		die->profile[i] = (struct mig_profile){
			.memory_bytes = b->memory_bytes,
			.sms = b->sms,
			.slices = b->slices,
			.limit = b->limit,
			.flags = mig_flags_of(b->nvml_enum),
			.starts = b->starts,
			.size = b->size,
		};
		for (uint32_t e = 0; e < MIG_ENGINES; e++)
			die->profile[i].engines[e] = b->engines[e];
	}
}

static inline void test_gpu_update(struct test_pool *t, uint32_t gpu)
{
	t->gpus[gpu].instances = t->instances[gpu];
	if (mig_gpu_update(&t->gpus[gpu], &t->dies[t->gpus[gpu].die]) < 0)
		t->gpus[gpu].offered = false;
}

/* Adds GPUs of one model. */
static inline void test_pool_add(struct test_pool *t, const char *model, uint32_t gpus)
{
	uint32_t die = t->pool.die_count++;

	t->boards[die].count = board_profiles(model, t->boards[die].board);
	test_die_fill(&t->dies[die], &t->boards[die]);
	if (mig_die_init(&t->dies[die]) < 0)
		t->dies[die].profile_count = 0;
	t->pool.dies = t->dies;
	t->pool.gpus = t->gpus;
	for (uint32_t i = 0; i < gpus; i++) {
		t->gpus[t->pool.gpu_count] =
			(struct mig_gpu){.die = (uint16_t)die, .offered = true};
		test_gpu_update(t, t->pool.gpu_count++);
	}
}

/* The profile of that name on a die; MIG_NO_PROFILE. */
static inline uint8_t test_profile(const struct test_pool *t, uint32_t die, const char *name)
{
	for (size_t i = 0; i < t->boards[die].count; i++)
		if (!strcmp(t->boards[die].board[i].name, name))
			return (uint8_t)i;
	return MIG_NO_PROFILE;
}

static inline const char *test_name(const struct test_pool *t, uint32_t die, uint8_t profile)
{
	return profile < t->boards[die].count ? t->boards[die].board[profile].name : "none";
}

/* An instance comes. Returns its number within the GPU. */
static inline uint32_t test_instance(struct test_pool *t, uint32_t gpu, uint8_t profile,
				     uint32_t start, enum mig_state state, uint64_t used)
{
	uint32_t n = t->gpus[gpu].instance_count++;

	t->instances[gpu][n] = (struct mig_instance){
		.used = used,
		.profile = profile,
		.start = (uint8_t)start,
		.size = t->dies[t->gpus[gpu].die].profile[profile].size,
		.state = state,
	};
	test_gpu_update(t, gpu);
	return n;
}

/* Does what was decided: destroyed ones are gone, the rest is busy. */
static inline void test_take(struct test_pool *t, const struct mig_decision *d)
{
	for (uint32_t i = 0; i < d->count; i++) {
		const struct mig_choice *c = &d->choice[i];

		for (uint32_t k = 0; k < t->gpus[c->gpu].instance_count; k++)
			if (c->destroy >> k & 1)
				t->instances[c->gpu][k].state = MIG_GONE;
		if (c->step == MIG_REUSE)
			t->instances[c->gpu][c->instance].state = MIG_BUSY;
	}
	for (uint32_t i = 0; i < d->count; i++)
		if (d->choice[i].step != MIG_REUSE)
			test_instance(t, d->choice[i].gpu, d->choice[i].profile, d->choice[i].start,
				      MIG_BUSY, 0);
	for (uint32_t gpu = 0; gpu < t->pool.gpu_count; gpu++) {
		uint32_t kept = 0;

		for (uint32_t k = 0; k < t->gpus[gpu].instance_count; k++)
			if (t->instances[gpu][k].state != MIG_GONE)
				t->instances[gpu][kept++] = t->instances[gpu][k];
		t->gpus[gpu].instance_count = kept;
		test_gpu_update(t, gpu);
	}
}

static inline struct mig_request test_bytes(uint64_t bytes)
{
	return (struct mig_request){.kind = MIG_ASK_BYTES, .bytes = bytes, .count = 1};
}

static inline struct mig_request test_share(uint32_t share)
{
	return (struct mig_request){.kind = MIG_ASK_SHARE, .share = share, .count = 1};
}
