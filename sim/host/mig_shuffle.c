/* Boards that nobody has built: a real one's profiles with other IDs, names, counts, sizes and
 * legal places, drawn at random from a seed. Programs that believe NVML, and no table, work on them
 * as on any. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "host/mig.h"

#define PROFILES_MAX 32u
#define BOARDS_MAX 64u
#define ID_LAST 126u

struct shuffled {
	const struct sim_model *model;
	const struct mig_family *of;
	uint32_t seed;
	struct mig_family family;
	struct mig_die die;
	struct mig_profile profiles[PROFILES_MAX];
	char names[PROFILES_MAX][24];
};

static _Atomic uint32_t shuffle_seed;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the two below; a leaf */
static struct shuffled boards[BOARDS_MAX];
static uint32_t board_count;

void mig_shuffle(uint32_t seed)
{
	shuffle_seed = seed;
}

/* xorshift64*; state is never 0. */
static uint32_t draw(uint64_t *state, uint32_t below)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return (uint32_t)(*state * 0x2545f4914f6cdd1du >> 33) % below;
}

static uint8_t id_draw(uint64_t *state, bool taken[static ID_LAST + 1])
{
	uint32_t id;

	do {
		id = draw(state, ID_LAST + 1);
	} while (taken[id]);
	taken[id] = true;
	return (uint8_t)id;
}

/* Places of one profile never overlap. */
static void legal_draw(uint64_t *state, struct mig_legal *legal, uint8_t units)
{
	bool whole = legal->size == units;

	legal->size = (uint8_t)(legal->size + (legal->size + 1 < units && draw(state, 3) == 0));
	legal->count = 0;
	if (whole)
		legal->starts[legal->count++] = 0;
	for (uint32_t at = draw(state, units - legal->size + 1u);
	     !whole && at + legal->size <= units && legal->count < MIG_STARTS_MAX;
	     at += legal->size)
		if (!legal->count || draw(state, 4))
			legal->starts[legal->count++] = (uint8_t)at;
}

/* A memory figure that was published or derived is what it is drawn from. */
static void profile_draw(uint64_t *state, const struct mig_board *real, struct mig_profile *p,
			 char name[static 24], unsigned number)
{
	const char *kind = strpbrk(p->name, "+-");
	uint32_t memory = mig_memory_mib(real, p);

	snprintf(name, 24, "%ug.%u%02ugb%s", draw(state, 9) + 1, draw(state, 9) + 1, number,
		 kind ? kind : "");
	p->name = name;
	p->max_instances = (uint8_t)(1 + draw(state, p->max_instances));
	p->sm = (uint16_t)(4 + 2 * draw(state, 60));
	p->memory_mib = memory * (70 + draw(state, 61)) / 100 / 128 * 128;
	p->other_memory_mib = 0;
}

static void ids_draw(uint64_t *state, struct shuffled *s)
{
	bool taken[ID_LAST + 1] = {false};
	uint8_t id[UINT8_MAX + 1] = {0};

	for (size_t i = 0; i < s->family.profile_count; i++) {
		uint8_t old = s->profiles[i].id;

		s->profiles[i].id = id[old] = id_draw(state, taken);
	}
	for (size_t i = 0; i < s->die.legal_count; i++)
		s->die.legal[i].profile_id = id[s->die.legal[i].profile_id];
	for (size_t i = 0; i < s->family.not_together_count; i++)
		for (size_t k = 0; k < ARRAY_SIZE(s->family.not_together[i]); k++)
			if (s->family.not_together[i][k] != MIG_NO_ID)
				s->family.not_together[i][k] = id[s->family.not_together[i][k]];
}

static bool has_profile(const struct mig_family *family, uint8_t id)
{
	for (size_t i = 0; i < family->profile_count; i++)
		if (family->profiles[i].id == id)
			return true;
	return false;
}

static void shuffled_fill(struct shuffled *s, const struct mig_board *real, uint32_t seed)
{
	uint64_t state = 1 + seed * 1000003ull + real->model->pci_device_id * 7919ull;

	s->model = real->model;
	s->of = real->family;
	s->seed = seed;
	s->family = *real->family;
	s->die = *real->die;
	s->die.legal_count = 0;
	for (size_t i = 0; i < real->die->legal_count; i++)
		if (has_profile(real->family, real->die->legal[i].profile_id))
			s->die.legal[s->die.legal_count++] = real->die->legal[i];
	memcpy(s->profiles, real->family->profiles,
	       s->family.profile_count * sizeof(s->profiles[0]));
	s->family.profiles = s->profiles;
	for (unsigned i = 0; i < s->family.profile_count; i++)
		profile_draw(&state, real, &s->profiles[i], s->names[i], i);
	for (size_t i = 0; i < s->die.legal_count; i++)
		legal_draw(&state, &s->die.legal[i], s->die.memory_units);
	ids_draw(&state, s);
}

static const struct shuffled *shuffled_find(const struct mig_board *real, uint32_t seed)
{
	for (uint32_t i = 0; i < board_count; i++)
		if (boards[i].model == real->model && boards[i].of == real->family &&
		    boards[i].seed == seed)
			return &boards[i];
	if (board_count == BOARDS_MAX || real->family->profile_count > PROFILES_MAX)
		return NULL;
	shuffled_fill(&boards[board_count], real, seed);
	return &boards[board_count++];
}

void mig_board_shuffle(struct mig_board *board)
{
	uint32_t seed = shuffle_seed;
	const struct shuffled *s;

	if (!seed)
		return;
	pthread_mutex_lock(&lock);
	s = shuffled_find(board, seed);
	pthread_mutex_unlock(&lock);
	if (s)
		*board = (struct mig_board){
			.model = board->model, .family = &s->family, .die = &s->die};
}
