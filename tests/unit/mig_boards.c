#include "mig_boards.h"

#include "host/mig.h"

/* The driver whose profiles these are. */
#define BRANCH 580u

const char *board_key(size_t index)
{
	size_t count;
	const struct sim_model *models = sim_models(&count);

	for (size_t i = 0; i < count; i++)
		if (models[i].mig_class && index-- == 0)
			return models[i].key;
	return NULL;
}

size_t board_profiles(const char *key, struct board_profile out[BOARD_PROFILES_MAX])
{
	const struct sim_model *model = sim_model_find(key);
	struct mig_board board;
	size_t n = 0;

	if (!model || !mig_board_find(model, BRANCH, &board))
		return 0;
	for (; n < board.family->profile_count && n < BOARD_PROFILES_MAX; n++) {
		const struct mig_profile *p = &board.family->profiles[n];
		const struct mig_legal *legal = mig_legal(&board, p);

		out[n] = (struct board_profile){
			.name = p->name,
			.memory_bytes = (uint64_t)mig_memory_mib(&board, p) << 20,
			.nvml_enum = p->nvml_enum,
			.id = p->id,
			.sms = mig_sm(&board, p),
			.slices = p->compute_slices,
			.limit = p->max_instances,
			.engines = {p->dec, p->enc, p->jpeg, p->ofa},
			.size = legal->size,
		};
		for (size_t i = 0; i < legal->count; i++)
			out[n].starts |= 1u << legal->starts[i];
	}
	return n;
}
