#include "mig_mix.h"

#include <math.h>
#include <string.h>

#include "mig_boards.h"

/* openb: the tasks of Alibaba's trace cluster-trace-gpu-v2023 (openb_pod_list_default.csv) that ask
 * for a GPU or a part of one, each by the smallest profile whose eighths hold its gpu_milli. Of
 * those of two and more GPUs, 1% of the tasks, each GPU is a task. */
const struct mix mixes[] = {
	{"uniform", {1, 1, 1, 1, 1, 1}},
	{"mostly small", {40, 15, 20, 15, 5, 5}},
	{"bimodal", {45, 0, 0, 0, 10, 45}},
	{"mostly large", {5, 5, 10, 20, 20, 40}},
	{"memory only", {1, 1, 0, 1, 0, 1}},
	{"inference", {60, 25, 10, 5, 0, 0}},
	{"openb", {0.42, 3.73, 0, 17.38, 0, 78.47}},
	{NULL, {0}},
};

static const char *const profile_names[6] = {"1g.10gb", "1g.20gb", "2g.20gb",
					     "3g.40gb", "4g.40gb", "7g.80gb"};

int mix_die(const char *model, struct mig_die *ret)
{
	static struct board_profile board[BOARD_PROFILES_MAX];
	size_t n = board_profiles(model, board);

	if (n == 0)
		return -1;
	ret->profile_count = (uint32_t)n;
	for (size_t i = 0; i < n; i++) {
		ret->profile[i] = (struct mig_profile){
			.memory_bytes = board[i].memory_bytes,
			.sms = board[i].sms,
			.slices = board[i].slices,
			.limit = board[i].limit,
			.flags = mig_flags_of(board[i].nvml_enum),
			.starts = board[i].starts,
			.size = board[i].size,
		};
		for (uint32_t e = 0; e < MIG_ENGINES; e++)
			ret->profile[i].engines[e] = board[i].engines[e];
	}
	return mig_die_init(ret);
}

void mix_wants(const char *model, const struct mix *mix, uint8_t profile[6],
	       struct mig_request wants[6], double *ret_mean)
{
	static struct board_profile board[BOARD_PROFILES_MAX];
	size_t n = board_profiles(model, board);
	double all = 0, size = 0, largest = 0;

	for (size_t i = 0; i < n; i++)
		largest = fmax(largest, board[i].size);
	for (size_t w = 0; w < 6; w++) {
		profile[w] = MIG_NO_PROFILE;
		for (size_t i = 0; i < n; i++)
			if (!strcmp(board[i].name, profile_names[w])) {
				profile[w] = (uint8_t)i;
				size += mix->share[w] * board[i].size;
			}
		all += mix->share[w];
		wants[w] = (struct mig_request){
			.kind = MIG_ASK_PROFILE, .profile = &profile[w], .count = 1};
	}
	*ret_mean = size / all / largest;
}

/* xorshift64*; in (0, 1]. */
static double draw(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return ((double)((*state * 0x2545f4914f6cdd1du) >> 11) + 1) / 9007199254740992.0;
}

static double draw_duration(bool heavy, uint64_t *state)
{
	double a = draw(state), b = draw(state), sigma = 1.6;

	if (!heavy)
		return -log(a);
	return exp(sigma * sqrt(-2 * log(a)) * cos(2 * M_PI * b) - sigma * sigma / 2);
}

static uint32_t draw_want(const struct mix *mix, uint64_t *state)
{
	double all = 0, at;
	uint32_t last = 0;

	for (uint32_t i = 0; i < 6; i++)
		all += mix->share[i];
	at = draw(state) * all;
	for (uint32_t i = 0; i < 6; i++) {
		if (mix->share[i] <= 0)
			continue;
		last = i;
		at -= mix->share[i];
		if (at <= 0)
			break;
	}
	return last;
}

void mix_draw(const struct mix *mix, double mean_part, double load, uint32_t gpus, bool heavy,
	      uint64_t seed, struct mig_sim_job *jobs, size_t count)
{
	uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
	double rate = load * gpus / mean_part, now = 0;

	for (int i = 0; i < 16; i++)
		draw(&state);
	for (size_t i = 0; i < count; i++) {
		now += -log(draw(&state)) / rate;
		jobs[i] = (struct mig_sim_job){.arrival = now,
					       .want = draw_want(mix, &state),
					       .duration = draw_duration(heavy, &state)};
	}
}
