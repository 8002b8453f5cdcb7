/* The part of a separated daemon that makes instances follows it into an upgrade. */
#include <stdlib.h>
#include <string.h>

#include "daemon/host/log.h"
#include "daemon/host/privileges.h"
#include "daemon/mig/mig.h"
#include "daemon/mig/mig_books.h"
#include "daemon/session/sessions.h"

struct renewal {
	uv_work_t work;
	struct mig *mig;
	int rc;
};

bool mig_is_lost(const struct mig *mig)
{
	return mig && mig->lost;
}

bool mig_is_quiet(const struct mig *mig)
{
	return !mig || !mig->orders;
}

static void on_work(uv_work_t *work)
{
	struct renewal *r = work->data;

	r->rc = instances_renew(r->mig->driver);
}

static void on_done(uv_work_t *work, int status)
{
	struct renewal *r = work->data;

	r->mig->orders--;
	if (r->rc < 0)
		log_event(LOG_WARNING, "mig.guard_stays error=\"%s\"", strerrordesc_np(-r->rc));
	else
		log_event(LOG_INFO, "mig.guard_renewed");
	free(r);
}

void mig_renew(struct mig *mig)
{
	struct renewal *r = mig && mig->driver && mig->sessions->privileges->mig_fd >= 0
				    ? calloc(1, sizeof(*r))
				    : NULL;

	if (!r)
		return;
	*r = (struct renewal){.work.data = r, .mig = mig};
	if (uv_queue_work(mig->sessions->loop, &r->work, on_work, on_done) == 0)
		mig->orders++;
	else
		free(r);
}
