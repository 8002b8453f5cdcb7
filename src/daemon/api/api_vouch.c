#include "daemon/api/api_vouch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "daemon/api/http.h"
#include "daemon/host/owner.h"
#include "daemon/node.h"
#include "proto/launcher.h"

struct vouch {
	struct vouch *next;
	struct call *call;
	struct link_asked *asked;
	api_vouched done;
	void (*gone)(void *arg);
	void *arg;
};

static struct vouch *vouches; /* whose answer is due */

static void vouch_remove(struct vouch *vouch)
{
	struct vouch **at = &vouches;

	while (*at != vouch)
		at = &(*at)->next;
	*at = vouch->next;
}

static void on_gone(struct call *call)
{
	struct vouch *vouch = vouches;

	while (vouch && vouch->call != call)
		vouch = vouch->next;
	if (!vouch)
		return;
	vouch_remove(vouch);
	launcher_forget(&call->node->launcher, vouch->asked);
	vouch->gone(vouch->arg);
	free(vouch);
}

static void failure_set(const struct node *node, int rc, struct error *err)
{
	if (rc == -EAGAIN) {
		error_set(err, EXIT_CODE_FAILED,
			  "too many requests of yours wait for the process that starts jobs; "
			  "ask again when some were answered");
		return;
	}
	if (rc != -ENOTCONN && rc != -ETIMEDOUT && rc != -EPIPE) {
		error_set(err, EXIT_CODE_FAILED, "cannot tell who sent the request: %s",
			  strerrordesc_np(-rc));
		return;
	}
	error_set(err, EXIT_CODE_FAILED, "%s, which starts users' jobs, does not answer now",
		  node->launcher.service ? "carve-launcher.service" : "the launcher");
	error_hint(err, node->launcher.service ? "try again, as it may be starting; "
						 "`systemctl status carve-launcher.service` tells"
					       : "try again; `carve check` says since when");
}

static void on_answer(void *arg, int rc, const void *reply, int *fd)
{
	struct vouch *vouch = arg;
	struct call *call = vouch->call;
	struct warrant *warrant = NULL;
	struct error err = {0};

	vouch_remove(vouch);
	if (rc == 0 && !(warrant = malloc(sizeof(*warrant))))
		rc = -ENOMEM;
	if (rc == 0)
		rc = launcher_warrant_read(*fd, warrant);
	if (rc == 0 && warrant->uid != call->peer.uid)
		rc = -EPERM;
	if (rc < 0) {
		free(warrant);
		failure_set(call->node, rc, &err);
	}
	vouch->done(vouch->arg, rc < 0 ? NULL : warrant, rc < 0 ? &err : NULL);
	free(vouch);
}

int api_vouch(struct call *call, const struct launcher_wish *wish, api_vouched done,
	      void (*gone)(void *arg), void *arg, struct error *err)
{
	struct launcher *launcher = &call->node->launcher;

	if (!launcher_is_there(launcher)) {
		done(arg, NULL, NULL);
		return 0;
	}
	struct vouch *vouch = calloc(1, sizeof(*vouch));
	if (!vouch)
		return error_set(err, EXIT_CODE_FAILED, "out of memory");
	*vouch = (struct vouch){
		.next = vouches, .call = call, .done = done, .gone = gone, .arg = arg};
	int rc = launcher_vouch(launcher, owner_of(call->peer.uid), call_socket(call), wish,
				on_answer, vouch, &vouch->asked);
	if (rc < 0) {
		free(vouch);
		failure_set(call->node, rc, err);
		return -EXIT_CODE_FAILED;
	}
	vouches = vouch;
	call_defer(call, on_gone);
	return 0;
}
