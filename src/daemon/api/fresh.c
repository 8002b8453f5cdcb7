#include "daemon/api/fresh.h"

#include <http_parser.h>
#include <stdlib.h>

#include "daemon/node.h"

struct fresh {
	struct fresh *next;
	struct call *call;
	uint64_t sample;
	call_answer answer;
	void *arg;
};

static void fresh_free(struct fresh *fresh)
{
	free(fresh->arg);
	free(fresh);
}

static void on_gone(struct call *call)
{
	struct fresh **at;

	for (at = &call->node->fresh; *at && (*at)->call != call; at = &(*at)->next)
		;
	if (*at) {
		struct fresh *fresh = *at;

		*at = fresh->next;
		fresh_free(fresh);
	}
}

static void defer(struct call *call, uint64_t sample, call_answer answer, void *arg)
{
	struct node *node = call->node;
	struct fresh *fresh = malloc(sizeof(*fresh));

	if (!fresh) {
		free(arg);
		call_reply(call, HTTP_STATUS_INTERNAL_SERVER_ERROR, NULL);
		return;
	}
	*fresh = (struct fresh){
		.next = node->fresh,
		.call = call,
		.sample = sample,
		.answer = answer,
		.arg = arg,
	};
	node->fresh = fresh;
	call_defer(call, on_gone);
	if (node->pool.state == POOL_NO_GPU)
		fresh_sampled(node);
}

void fresh_defer(struct call *call, call_answer answer, void *arg)
{
	defer(call, pool_refresh(&call->node->pool, POOL_ALL), answer, arg);
}

void fresh_await(struct call *call, call_answer answer, void *arg)
{
	defer(call, call->node->pool.started + 1, answer, arg);
}

void fresh_sampled(struct node *node)
{
	for (struct fresh **at = &node->fresh; *at;) {
		struct fresh *fresh = *at;

		if (node->pool.state == POOL_READY &&
		    (!node->ready || fresh->sample > node->pool.done)) {
			at = &fresh->next;
			continue;
		}
		*at = fresh->next;
		call_fairly(fresh->call, fresh->answer, fresh->arg);
		free(fresh);
	}
}
