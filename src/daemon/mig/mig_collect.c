#include "daemon/mig/mig_collect.h"

#include "base/clock.h"
#include "daemon/gpu/pool.h"
#include "daemon/mig/mig_books.h"
#include "daemon/mig/mig_order.h"

static bool is_old(const struct mig_board *board, uint32_t at, uint64_t older_ns)
{
	return board->instance[at].state == MIG_IDLE &&
	       now_monotonic_ns() - board->instance[at].used >= older_ns;
}

unsigned mig_collect_start(struct mig *mig, uint32_t gpu, uint64_t older_ns)
{
	struct mig_board *board = &mig->board[gpu];
	unsigned count = 0;

	for (uint32_t at = 0; at < board->count; at++)
		count += is_old(board, at, older_ns);
	if (board->changing) {
		board->collect = true;
		board->collect_older_ns = older_ns;
		return count;
	}
	struct mig_order *o = count ? mig_order_new(mig, MIG_INSTANCES_MAX) : NULL;
	if (!o)
		return 0;
	for (uint32_t at = 0; at < board->count; at++)
		if (is_old(board, at, older_ns))
			mig_order_remove(o, gpu, at);
	if (mig_order_look(o, gpu) == 0 && mig_order_store(o) == 0)
		return mig_order_start(o) == 0 ? count : 0;
	mig_order_revert(o);
	return 0;
}

unsigned mig_collect_board(struct mig *mig, uint32_t gpu, uint64_t older_ns)
{
	return mig_board_ours(mig, gpu) ? mig_collect_start(mig, gpu, older_ns) : 0;
}

unsigned mig_collect(struct mig *mig, uint64_t older_ns)
{
	unsigned count = 0;

	for (uint32_t gpu = 0; gpu < mig->gpus->count; gpu++)
		count += mig_collect_board(mig, gpu, older_ns);
	return count;
}
