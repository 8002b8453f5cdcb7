/* Connections are left to the next program of an upgrade, and taken up from the last one. */
#include <jansson.h>

#include "base/file.h"
#include "daemon/attach/attach.h"
#include "daemon/attach/attach_private.h"
#include "daemon/host/handover.h"
#include "daemon/host/rights.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/session/sessions.h"

void attach_hand_over(struct attach_server *server, struct handover *h)
{
	arrivals_open(&server->arrivals);
	for (const struct attach_connection *c = server->connections; c; c = c->next) {
		json_t *left = json_pack(
			"{s:o, s:o, s:b, s:I, s:I}", "fd", handover_fd(h, c->fd), "peer",
			handover_peer(&c->peer), "settling", c->settle_sample != 0, "settle_gpu",
			(json_int_t)c->settle_gpu, "leaving", (json_int_t)c->settle_leaving);

		if (c->sweep_ns)
			json_object_set_new(left, "sweeping", json_string(c->entering));

		if (c->process) {
			json_object_set_new(left, "session",
					    json_string(c->process->session->record.id));
			json_object_set_new(left, "slot", json_integer(c->process->slot));
		}
		handover_add(h, "attached", left);
	}
}

static struct process *process_of(const struct sessions *sessions, const json_t *from)
{
	const char *id = json_string_value(json_object_get(from, "session"));
	json_int_t slot = json_integer_value(json_object_get(from, "slot"));
	struct session *s = id ? session_find(sessions, id) : NULL;
	struct process *p = s ? s->processes : NULL;

	while (p && (p->slot != slot || p->connection))
		p = p->next;
	return p;
}

static void connection_take_over(struct attach_server *server, struct handover *h,
				 const json_t *from)
{
	cleanup_close int fd = handover_take(h, json_object_get(from, "fd"));
	struct attach_connection *c;
	struct peer peer;

	rights_refuse(fd); /* a program of before may not have asked for it */
	/* The peer's identity was asked for when it connected: by now its process may have ended,
	 * and its children hold the connection. */
	if (fd < 0 || !handover_take_peer(json_object_get(from, "peer"), &peer) ||
	    attach_connection_open(server, &fd, &peer, &c) < 0)
		return;
	const char *entering = json_string_value(json_object_get(from, "sweeping"));
	struct session *s = entering ? session_find(server->sessions, entering) : NULL;

	c->process = process_of(server->sessions, from);
	if (s && !c->process)
		(void)attach_workload(c, s);
	if (!c->process)
		return;
	if (c->process->connection != c)
		process_connected(c->process, c);
	if (json_is_true(json_object_get(from, "settling")))
		(void)attach_settle(
			c, SETTLE_INEXACT,
			(uint32_t)json_integer_value(json_object_get(from, "settle_gpu")),
			(uint64_t)json_integer_value(json_object_get(from, "leaving")));
	if (entering && !s)
		(void)attach_sweep(c);
}

void attach_take_over(struct attach_server *server, struct handover *h)
{
	size_t i;
	json_t *from;

	json_array_foreach(json_object_get(h->root, "attached"), i, from)
		connection_take_over(server, h, from);
}
