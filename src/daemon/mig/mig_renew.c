/* The part of a separated daemon that makes instances follows it into an upgrade. */
#include <stdlib.h>
#include <string.h>

#include "daemon/host/log.h"
#include "daemon/mig/mig.h"
#include "daemon/mig/mig_books.h"
#include "daemon/node.h"

struct renewal {
	uv_work_t work;
	struct node *node;
	int rc;
};

bool mig_is_quiet(const struct node *node)
{
	return !node->mig || !node->mig->orders;
}

static void on_work(uv_work_t *work)
{
	struct renewal *r = work->data;

	r->rc = instances_renew(r->node->mig->driver);
}

static void on_done(uv_work_t *work, int status)
{
	struct renewal *r = work->data;
	struct node *node = r->node;

	node->mig->orders--;
	if (node->stopping) {
		if (!node->mig->orders)
			mig_free(node);
	} else if (r->rc < 0) {
		log_event(LOG_WARNING, "mig.guard_stays error=\"%s\"", strerrordesc_np(-r->rc));
	} else {
		log_event(LOG_INFO, "mig.guard_renewed");
	}
	free(r);
}

void mig_renew(struct node *node)
{
	struct renewal *r = node->mig && node->mig->driver && node->privileges.mig_fd >= 0
				    ? calloc(1, sizeof(*r))
				    : NULL;

	if (!r)
		return;
	*r = (struct renewal){.work.data = r, .node = node};
	if (uv_queue_work(&node->loop, &r->work, on_work, on_done) == 0)
		node->mig->orders++;
	else
		free(r);
}
