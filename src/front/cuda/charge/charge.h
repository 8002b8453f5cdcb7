/* One driver call that takes device memory, or gives it back. An allocation is charged in these
 * steps, as cuMemAlloc is (linear.c):
 *
 * 1. taking_begin() finds the process's attachment, which its first call makes (process.h), the
 *    current context and the ledger's number of its GPU. Without a context nothing is reserved: the
 *    driver refuses.
 * 2. books_reserve() adds the bytes to the process's slot and counts the call as begun. One
 *    compare-and-swap tests the limit and adds (proto/ledger.h). Several small allocations share a
 *    block, and only a new block is charged (small.h).
 * 3. Where there is no room, the process's own pools give back what they hold unused. Then room is
 *    waited for, for a bounded time, and the daemon is asked at most once (charge_again()). After
 *    that the call is refused as CUDA_ERROR_OUT_OF_MEMORY, and counted.
 * 4. The driver is called, and no lock is held meanwhile. TAKE() asks it again for up to a second
 *    where it has no memory.
 * 5. taking_end() books the object by its handle and counts the call as done (books_keep()), or
 *    takes the reservation back (books_cancel()).
 * 6. A call that frees it takes it out of the books first, so that a thread that gets the same
 *    handle finds it free (giving_begin()). giving_end() uncharges it, or books it again where the
 *    driver refused.
 *
 * Memory that the driver takes unasked, for contexts and code, is in implicit.h. The daemon posts
 * the difference to the driver's figures (docs/dev/ledger.md). */
#pragma once

#include "base/cuda_abi.h"
#include "front/process.h"

/* The ledger's GPU of the calling thread's context; -1: none. */
int charge_current_gpu(struct process *p);

/* Whether asking again may help after the slice had no room for `bytes`. It may if
 *
 *   - a call of another process or thread is under way: it may have reserved more than it needs for
 *     a moment,
 *   - the slice is over, by something that is about to be undone,
 *   - memory was given back, and the daemon looks whether the driver still has it,
 *   - or processes hold it that have ended (charge_sweep()).
 *
 * Waits for a moment then. False after some tries; *tries begins as {0}. The tries last 2 ms in
 * all, 100 ms if the slice is over, 1 s if memory is leaving, and as long again after a sweep. The
 * cause may just have ended, so it says true once in any case. */
struct charge_tries {
	int naps;
	bool last, swept;
	uint64_t leaving_until_ns; /* 0: nothing was leaving yet */
	uint64_t said_ns;          /* until when it was said that there is no room; 0: it was not */
	bool beside;               /* another looked for room at the same time */
};
bool charge_again(struct process *p, int gpu, uint64_t bytes, struct charge_tries *tries);
/* Said from the first time on that there is no room until it is found, or refused for good. Others
 * that charge more than they take, for a moment, are to give it back at once, and wait before they
 * do so again (charge_is_short()). It passes by itself when the process dies, or where others
 * looked for room meanwhile, for whom it stays said. */
void charge_short_begin(struct process *p, int gpu, struct charge_tries *tries);
void charge_short_end(struct process *p, int gpu, const struct charge_tries *tries);
/* Somebody of the session looks for room on that GPU just now. */
bool charge_is_short(const struct process *p, int gpu);
/* If others have what `bytes` do not fit beside, the daemon is asked to take from processes that
 * have ended. If any are just ending, that takes seconds at most (ATTACH_SWEEP_MS). True: look
 * again. It costs no system call where it cannot help: the process is alone, or `bytes` would not
 * fit if it were. Within a driver call that is counted. */
bool charge_sweep_in_call(struct process *p, int gpu, uint64_t bytes);

/* The driver's reason to refuse memory in the current context: normally that there is none. But if
 * the context is no more, or a kernel went wrong in it, the driver says that, whatever is asked of
 * it. */
CUresult charge_refusal(void);

struct taking {
	struct process *process; /* NULL: nothing was reserved, as the driver will refuse */
	struct object object;    /* the object that the call will make */
};

/* The result of a call that was refused with `result` before the driver was asked. If there is no
 * place for the result, the driver has the better word, and takes nothing. */
#define REFUSED(result, has_place, call) ((has_place) ? (result) : (call))

/* Reserves `bytes` on the GPU of the current context; only blocks for OBJECT_LINEAR are shared.
 * CUDA_SUCCESS: call the driver, then taking_end(). Else that is the answer, and nothing happened.
 */
CUresult taking_begin(struct taking *t, enum object_kind kind, uint64_t bytes);
/* The same on a given GPU (-1: none of the slice), for what belongs to no context. */
CUresult taking_begin_on(struct taking *t, struct process *p, int gpu, enum object_kind kind,
			 uint64_t bytes);
/* The same without having pools trimmed and without counting as refused. */
CUresult taking_try_on(struct taking *t, struct process *p, int gpu, enum object_kind kind,
		       uint64_t bytes);
/* The driver's word for a call whose memory is reserved. It may say that there is no memory because
 * somebody else holds too much for a moment. That is a module that is about to be undone, or a
 * process that has just died. So it is asked again, for a second at most. */
#define TAKE(taking, call)                                                                   \
	({                                                                                   \
		CUresult taken_;                                                             \
		int tries_ = 0;                                                              \
		do                                                                           \
			taken_ = (call);                                                     \
		while (taken_ == CUDA_ERROR_OUT_OF_MEMORY && taking_again(taking, &tries_)); \
		taken_;                                                                      \
	})
/* Waits for a moment; false where asking again makes no sense, or not any more. */
bool taking_again(const struct taking *t, int *tries);
/* The driver took another amount than was reserved. False: there is no room for it; undo the call.
 */
bool taking_resize(struct taking *t, uint64_t bytes);
/* The driver answered: books the object by its handle, or rolls back. Returns `result`, but
 * CUDA_ERROR_OUT_OF_MEMORY where a small one, already freed again, did not fit. */
CUresult taking_end(struct taking *t, CUresult result, uint64_t handle);

struct giving {
	struct process *process; /* NULL: not one of ours */
	struct object object;
	bool releasing; /* giving_left() is due */
	bool in_call;   /* within another call that is counted */
};

/* The object of that handle is about to be freed. To be followed by the driver's call and
 * giving_end(), whether the handle is known or not. */
void giving_begin(struct giving *g, enum object_kind kind, uint64_t handle);
/* Returns what it had reserved, or books it again where the driver did not free it. Returns
 * `result`. */
CUresult giving_end(struct giving *g, CUresult result);
/* In place of that, after it was dropped and what is leaving was told to the daemon. */
void giving_left(struct giving *g);
