/* Asks the daemon, in a thread of its own: however long it takes to answer, keys work. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "cli/top/top_model.h"

struct client;
struct top_feed;

/* One round of questions. 0 with *ret (to be freed), or negative with *err. */
int top_fetch(const struct client *client, struct top_answers *ret, struct error *err);

/* News from the daemon: a model, or the outcome of a release. */
struct top_news {
	bool looked;             /* at the daemon: `model`, or NULL and `error` says why */
	struct top_model *model; /* the taker's */
	bool released;           /* it was asked to: `id`, and `error` where it did not work */
	char id[64];
	struct error error;
};

/* Starts the thread, with all signals blocked in it. `client` must outlive it. 0 or -errno. */
int top_feed_start(struct top_feed **ret, const struct client *client);
/* Readable when there is news. */
int top_feed_fd(const struct top_feed *feed);
/* Looks at the daemon, if it is not being looked at. */
void top_feed_look(struct top_feed *feed);
/* Releases a session. At most one release is under way: false, try later. */
bool top_feed_release(struct top_feed *feed, const char *id, bool force);
/* False: there is no news (more). */
bool top_feed_take(struct top_feed *feed, struct top_news *ret);
/* Ends the thread. Where a daemon still keeps it waiting, it is left behind: the program must end.
 */
void top_feed_stop(struct top_feed *feed);
