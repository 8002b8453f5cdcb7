/* Each user has a line of requests. The launcher is asked of a bounded number of them, and each
 * answer lets one more follow, in the user's turn at the loop's budget. A request that waits is
 * its call and its text, which stand in memory already: calls are bounded by their connections.
 *
 * A launcher that does not answer in time fails the requests that it was asked of. The requests
 * behind them fail by the same error, one in each turn of their user. Loop thread only. */
#include "daemon/api/api_vouch.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"
#include "daemon/api/http.h"
#include "daemon/host/fair.h"
#include "daemon/host/owner.h"
#include "daemon/node.h"
#include "proto/warden_jobs.h"

/* A user's requests of which the launcher has been asked at a time. Each of them holds two
 * descriptors of this process open; the requests that wait hold none. */
#define ASKED_MAX 16u

struct vouch {
	struct vouch *next;
	struct voucher *voucher;
	struct call *call;
	struct launcher_wish wish;
	bool is_asked;
	uint64_t asked;
	api_vouched done;
	void (*gone)(void *arg);
	void *arg;
};

/* A user with requests, the oldest first: those that were asked lie before those that wait. */
struct voucher {
	struct voucher *next;
	uid_t owner;
	struct node *node;
	unsigned asked;
	int rc; /* the warden does not answer: requests that wait fail by it */
	struct fair_work turn;
	struct vouch *first, *last;
};

static struct voucher *vouchers;

/* ---- users -------------------------------------------------------------------------------- */

static struct voucher **voucher_place(uid_t owner)
{
	struct voucher **at = &vouchers;

	while (*at && (*at)->owner != owner)
		at = &(*at)->next;
	return at;
}

static void on_turn(struct fair_work *turn);

static struct voucher *voucher_get(struct node *node, uid_t owner)
{
	struct voucher **at = voucher_place(owner);

	if (!*at && (*at = calloc(1, sizeof(**at))))
		**at = (struct voucher){.owner = owner, .node = node, .turn.run = on_turn};
	return *at;
}

static struct vouch *waiting_first(const struct voucher *voucher)
{
	struct vouch *vouch = voucher->first;

	while (vouch && vouch->is_asked)
		vouch = vouch->next;
	return vouch;
}

static void vouch_add(struct voucher *voucher, struct vouch *vouch)
{
	*(voucher->last ? &voucher->last->next : &voucher->first) = vouch;
	voucher->last = vouch;
	vouch->voucher = voucher;
}

/* The user has a turn for the next request that waits, and goes without requests. */
static void voucher_settle(struct voucher *voucher)
{
	const struct vouch *next = waiting_first(voucher);

	if (!next)
		voucher->rc = 0;
	/* Without memory for a line, the next answer goes on with it. */
	if (next && voucher->asked < ASKED_MAX && !voucher->turn.line)
		(void)fair_line_up(&voucher->node->turns, voucher->owner, &voucher->turn);
	if (voucher->first)
		return;
	fair_withdraw(&voucher->turn);
	*voucher_place(voucher->owner) = voucher->next;
	free(voucher);
}

/* The rest of its user's requests goes on. */
static void vouch_remove(struct vouch *vouch)
{
	struct voucher *voucher = vouch->voucher;
	struct vouch **at = &voucher->first, *before = NULL;

	while (*at != vouch) {
		before = *at;
		at = &before->next;
	}
	*at = vouch->next;
	if (voucher->last == vouch)
		voucher->last = before;
	voucher->asked -= vouch->is_asked;
	voucher_settle(voucher);
}

static void on_gone(struct call *call)
{
	const struct voucher *voucher = *voucher_place(owner_of(call->peer.uid));
	struct vouch *vouch = voucher ? voucher->first : NULL;

	while (vouch && vouch->call != call)
		vouch = vouch->next;
	if (!vouch)
		return;
	launcher_forget(&call->node->launcher, vouch->asked);
	vouch_remove(vouch);
	vouch->gone(vouch->arg);
	free(vouch);
}

/* ---- answers ------------------------------------------------------------------------------ */

static void failure_set(const struct node *node, int rc, struct error *err)
{
	if (rc == -EAGAIN) {
		error_set(err, EXIT_CODE_FAILED,
			  "too many starts of your jobs wait for the process that starts jobs; "
			  "ask again when some have begun");
		return;
	}
	if (rc != -ENOTCONN && rc != -ETIMEDOUT && rc != -EPIPE) {
		error_set(err, EXIT_CODE_FAILED, "cannot tell who sent the request: %s",
			  strerrordesc_np(-rc));
		return;
	}
	error_set(err, EXIT_CODE_FAILED, "%s, which starts users' jobs, does not answer now",
		  node->launcher.service ? "carve-warden.service" : "carve-supervise");
	error_hint(err, node->launcher.service ? "try again, as it may be starting; "
						 "`systemctl status carve-warden.service` tells"
					       : "try again; `carve check` says since when");
}

static void vouch_end(struct vouch *vouch, int rc, struct warrant *warrant)
{
	struct error err = {0};

	if (rc < 0)
		failure_set(vouch->call->node, rc, &err);
	vouch_remove(vouch);
	vouch->done(vouch->arg, warrant, rc < 0 ? &err : NULL);
	free(vouch);
}

static void on_answer(void *arg, int rc, const void *reply, int *fd)
{
	struct vouch *vouch = arg;
	struct warrant *warrant = NULL;

	/* It does not answer the requests behind this one either. */
	if (rc == -ETIMEDOUT)
		vouch->voucher->rc = rc;
	if (rc == 0 && !(warrant = malloc(sizeof(*warrant))))
		rc = -ENOMEM;
	if (rc == 0)
		*warrant = *(const struct warrant *)reply;
	if (rc == 0 && warrant->uid != vouch->call->peer.uid)
		rc = -EPERM;
	if (rc < 0) {
		free(warrant);
		warrant = NULL;
	}
	vouch_end(vouch, rc, warrant);
}

/* ---- asking ------------------------------------------------------------------------------- */

static int vouch_ask(struct vouch *vouch)
{
	struct call *call = vouch->call;
	int rc = launcher_vouch(&call->node->launcher, vouch->voucher->owner, call_socket(call),
				&vouch->wish, on_answer, vouch, &vouch->asked);

	if (rc == 0) {
		vouch->is_asked = true;
		vouch->voucher->asked++;
	}
	return rc;
}

/* One request that waits is asked, or fails. */
static void on_turn(struct fair_work *turn)
{
	struct voucher *voucher = CONTAINER_OF(turn, struct voucher, turn);
	struct vouch *vouch = waiting_first(voucher);
	int rc = !vouch ? 0 : voucher->rc < 0 ? voucher->rc : vouch_ask(vouch);

	if (rc < 0)
		vouch_end(vouch, rc, NULL);
	else
		voucher_settle(voucher);
}

int api_vouch(struct call *call, const struct launcher_wish *wish, api_vouched done,
	      void (*gone)(void *arg), void *arg, struct error *err)
{
	if (!launcher_is_there(&call->node->launcher)) {
		done(arg, NULL, NULL);
		return 0;
	}
	struct vouch *vouch = calloc(1, sizeof(*vouch));
	struct voucher *voucher = vouch ? voucher_get(call->node, owner_of(call->peer.uid)) : NULL;
	if (!voucher) {
		free(vouch);
		return error_set(err, EXIT_CODE_FAILED, "out of memory");
	}
	*vouch =
		(struct vouch){.call = call, .wish = *wish, .done = done, .gone = gone, .arg = arg};
	bool waits = waiting_first(voucher) || voucher->asked == ASKED_MAX;
	vouch_add(voucher, vouch);
	int rc = waits ? 0 : vouch_ask(vouch);
	if (rc < 0) {
		failure_set(call->node, rc, err);
		vouch_remove(vouch);
		free(vouch);
		return -EXIT_CODE_FAILED;
	}
	call_defer(call, on_gone);
	return 0;
}
