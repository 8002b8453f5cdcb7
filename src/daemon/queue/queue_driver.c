/* Where the driver's libraries are, for shims: looked up once, as each look loads a driver in a
 * process of its own. A shim that is not told looks itself, and so does one for which what was
 * found does not hold any more. */
#include <stdlib.h>
#include <string.h>

#include "daemon/host/child.h"
#include "daemon/queue/queue_private.h"
#include "proto/shim.h"

/* A driver that loads slowly is waited for by nobody. */
#define LOOK_TIMEOUT_MS 30000u

struct queue_driver {
	struct child child;
	bool looks;    /* the child runs */
	bool left;     /* the queues are gone: the child's end frees this */
	json_t *found; /* NULL: not known */
};

static void on_looked(struct child *child)
{
	struct queue_driver *driver = child->arg;

	driver->looks = false;
	if (driver->left) {
		free(driver);
		return;
	}
	/* One whose names are longer than what is read of them is no JSON. */
	json_t *found = child->status ? NULL : json_loads(child->text, 0, NULL);
	if (json_string_length(json_object_get(found, "cuda")) &&
	    json_string_length(json_object_get(found, "nvml")))
		driver->found = found;
	else
		json_decref(found);
}

json_t *queue_driver_known(struct queues *q)
{
	char *argv[] = {q->shim, SHIM_DRIVER, NULL};

	if (q->driver)
		return q->driver->found;
	q->driver = calloc(1, sizeof(*q->driver));
	if (!q->driver)
		return NULL;
	q->driver->child.arg = q->driver;
	q->driver->looks = true;
	(void)child_start(&q->driver->child, q->host.sessions->loop, q->shim, argv, LOOK_TIMEOUT_MS,
			  on_looked);
	return NULL;
}

void queue_driver_free(struct queues *q)
{
	if (!q->driver)
		return;
	json_decref(q->driver->found);
	q->driver->left = true;
	if (q->driver->looks)
		child_kill(&q->driver->child);
	else
		free(q->driver);
	q->driver = NULL;
}
