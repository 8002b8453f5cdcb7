/* Shared by the files of the HTTP server. */
#pragma once

#include <microhttpd.h>
#include <stdbool.h>
#include <uv.h>

#include "daemon/api/http.h"
#include "daemon/api/http_reading.h"
#include "daemon/host/arrivals.h"
#include "daemon/host/crowd.h"
#include "daemon/host/fair.h"

/* A connection that libmicrohttpd has. */
struct http_connection {
	struct http_connection *next, *previous; /* server->open */
	struct MHD_Connection *connection;
	uid_t owner;         /* to whom it counts */
	uid_t answer_owner;  /* to whom answer_kib counts: subordinate ranges may have changed */
	unsigned answer_kib; /* the size of an answer that is not read yet */
	bool in_call;        /* a request came, and its answer is not out yet */
	struct http_reading reading;
};

struct http_server {
	struct node *node;
	call_answer answer;
	struct MHD_Daemon *mhd;
	uv_poll_t poll;
	uv_timer_t timer;
	struct arrivals arrivals;
	unsigned open_handles;
	struct crowd crowd;
	struct crowd answers; /* KiB of answers that were not read yet */
	struct crowd bodies;  /* KiB of bodies of requests that were not answered yet */
	struct http_connection *open;
	struct http_call *deferred; /* calls whose answer comes later */
	unsigned calls, deferred_count;
	bool logged;       /* libmicrohttpd had its line of this second */
	unsigned unlogged; /* and others since */
	bool stopping;
	bool resumed;         /* some have theirs; libmicrohttpd has not seen it */
	uv_idle_t more_calls; /* runs while calls stand in lines: the loop does not sleep */
};

struct http_call {
	struct call call;                  /* first, so that one is the other */
	struct http_call *next, *previous; /* server->deferred */
	struct MHD_Connection *connection;
	char *buffer;
	size_t received;   /* bytes of body, kept or not */
	unsigned body_kib; /* the size of the kept bodies, as counted */
	uid_t body_owner;  /* to whom they count */
	bool body_refused; /* for want of room: the rest is read and dropped */
	struct MHD_Response *response;
	unsigned status;
	bool dispatched, deferred;
	void (*on_gone)(struct call *call);
	struct fair_work turn; /* while it waits for its user's: what answers it then */
	call_answer answer;
	void *answer_arg;
	/* Sees the client go while libmicrohttpd does not look at the connection. */
	uv_poll_t *watch;
};

static inline struct http_call *http_call(struct call *call)
{
	return (struct http_call *)call;
}

int http_connection_fd(struct MHD_Connection *connection);
void http_call_free(struct http_call *call);
