/* Reports that were asked for. A report waits until the figures of living sessions are written up
 * to now, then for its turn. One report at a time is read on the thread pool, so that the pool
 * stays free for the driver. A user has a bounded number of reports in the line. Loop thread. */
#pragma once

#include <sys/types.h>
#include <uv.h>

#include "daemon/host/budget.h"
#include "daemon/report/report_read.h"

struct report;
struct report_ask;

/* Reports that wait or are being read, all users' together. */
#define REPORT_ASKS_MAX 64u

struct report_asks {
	uv_loop_t *loop; /* lent */
	struct report_ask *first;
	struct report_ask *running; /* NULL: none */
	struct budget budget;
};

/* `text` is the answer, JSON from malloc, which becomes the caller's; NULL: `rc` says why not. */
typedef void (*report_ask_cb)(void *arg, char *text, int rc);
/* 0, or -EMFILE: this user has too many in the line; or another -errno. */
int report_ask(struct report *report, uid_t uid, const struct report_query *query, report_ask_cb cb,
	       void *arg);
/* The client that asked with this `arg` is gone. */
void report_ask_forget(struct report *report, const void *arg);
/* A write is done. */
void report_asks_go_on(struct report *report);
void report_asks_stop(struct report *report);
