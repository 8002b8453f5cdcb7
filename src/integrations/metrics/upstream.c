#include "integrations/metrics/upstream.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/macros.h"
#include "daemon/host/log.h"
#include "daemon/metrics/text.h"
#include "http/http_ask.h"
#include "integrations/metrics/exporter.h"
#include "integrations/metrics/reader.h"

/* An answer serves all who ask within this time. */
#define PAGE_YOUNG_NS 1000000000ull
/* The daemon is given up after this time. */
#define ANSWER_MOST_NS 30000000000ull
/* 2048 slices have some 5 MiB. */
#define ANSWER_BYTES_MAX ((size_t)64 << 20)
#define READ_BYTES 65536u

struct wanting {
	struct wanting *next;
	struct reader *reader;
};

/* One of the two pages: with the slices of all users, and with none. */
struct question {
	struct upstream *upstream;
	const char *path;
	struct page *page; /* the last answer; NULL: there is none */
	uint64_t page_ns;
	struct wanting *wanting;
	int fd; /* -1: nothing is being asked */
	uv_poll_t poll;
	bool open; /* the handle is */
	uint64_t asked_ns;
	char head[256];
	size_t head_size, head_sent;
	struct http_ask ask;
};

struct upstream {
	struct exporter *exporter;
	struct question question[2];
	bool logged; /* that the daemon does not answer */
};

void upstream_page_release(struct page *page)
{
	if (!page || --page->uses)
		return;
	free(page->text);
	free(page);
}

/* ---- the exporter's own metrics ------------------------------------------------------------ */

static void refusals_write(const struct exporter *e, struct metrics_text *text)
{
	static const char *const reasons[REFUSALS] = {
		[REFUSED_TOKEN] = "token",   [REFUSED_CERTIFICATE] = "certificate",
		[REFUSED_HANDSHAKE] = "tls", [REFUSED_FULL] = "too_many",
		[REFUSED_SLOW] = "slow",
	};
	static const struct metrics_family family = {"carve_metrics_refused_total",
						     "Readers of the TCP socket that were refused.",
						     METRICS_PLAIN, true};

	metrics_family_begin(text, &family);
	for (unsigned i = 0; i < REFUSALS; i++) {
		struct metrics_text label = {0};

		metrics_label(&label, 0, "reason", reasons[i]);
		if (!label.failed)
			metrics_sample(text, &family, label.data, label.size, e->door.refused[i]);
		metrics_text_free(&label);
	}
}

static void own_metrics_write(const struct exporter *e, struct metrics_text *text)
{
	static const struct metrics_family connections = {"carve_metrics_connections",
							  "Connections to the TCP socket.",
							  METRICS_PLAIN, false};
	static const struct metrics_family scrapes = {
		"carve_metrics_scrapes_total", "Scrapes of the TCP socket that were answered.",
		METRICS_PLAIN, true};
	static const struct metrics_family unanswered = {
		"carve_metrics_unanswered_total",
		"Scrapes of the TCP socket that the daemon did not answer.", METRICS_PLAIN, true};

	metrics_single(text, &connections, e->door.visitor_count);
	metrics_single(text, &scrapes, e->scrapes);
	metrics_single(text, &unanswered, e->unanswered);
	refusals_write(e, text);
}

/* ---- asking -------------------------------------------------------------------------------- */

static void on_closed(uv_handle_t *handle)
{
	struct question *q = handle->data;

	q->open = false;
	close_fd(&q->fd);
}

static void asking_end(struct question *q)
{
	http_ask_free(&q->ask);
	if (q->open && !uv_is_closing((uv_handle_t *)&q->poll)) {
		uv_poll_stop(&q->poll);
		uv_close((uv_handle_t *)&q->poll, on_closed);
	} else if (!q->open) {
		close_fd(&q->fd);
	}
}

/* All who want it have it, or nothing. */
static void page_give(struct question *q)
{
	for (struct wanting *w; (w = q->wanting);) {
		q->wanting = w->next;
		if (q->page)
			q->page->uses++;
		reader_page(w->reader, q->page);
		free(w);
	}
}

static void failed(struct question *q, const char *why)
{
	if (!q->upstream->logged)
		log_event(LOG_WARNING, "metrics.unanswered socket=%s error=\"%s\"",
			  q->upstream->exporter->door.socket, why);
	q->upstream->logged = true;
	asking_end(q);
	upstream_page_release(steal_ptr(&q->page));
	page_give(q);
}

static void answered(struct question *q)
{
	struct metrics_text text = {0};

	if (q->ask.status != HTTP_STATUS_OK) {
		failed(q, "it answers with an error");
		return;
	}
	metrics_text_add(&text, q->ask.body ? q->ask.body : "", q->ask.size);
	own_metrics_write(q->upstream->exporter, &text);
	struct page *page = text.failed ? NULL : malloc(sizeof(*page));
	if (!page) {
		metrics_text_free(&text);
		failed(q, "out of memory");
		return;
	}
	*page = (struct page){.uses = 1, .size = text.size, .text = text.data};
	upstream_page_release(q->page);
	q->page = page;
	q->page_ns = now_monotonic_ns();
	q->upstream->logged = false;
	asking_end(q);
	page_give(q);
}

static void on_event(uv_poll_t *poll, int status, int events);

/* Sends the request, and listens for the answer once it is sent. */
static int question_send(struct question *q)
{
	ssize_t n = send(q->fd, q->head + q->head_sent, q->head_size - q->head_sent,
			 MSG_NOSIGNAL | MSG_DONTWAIT);

	if (n < 0 && errno != EAGAIN)
		return -errno;
	q->head_sent += n > 0 ? (size_t)n : 0;
	return uv_poll_start(&q->poll, q->head_sent < q->head_size ? UV_WRITABLE : UV_READABLE,
			     on_event);
}

static void answer_read(struct question *q)
{
	char data[READ_BYTES];
	ssize_t n = recv(q->fd, data, sizeof(data), MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	switch (http_ask_take(&q->ask, data, n > 0 ? (size_t)n : 0)) {
	case HTTP_ASK_MORE:
		return;
	case HTTP_ASK_ANSWERED:
		answered(q);
		return;
	case HTTP_ASK_NO_MEMORY:
		failed(q, "out of memory");
		return;
	default:
		failed(q, "the connection ended");
	}
}

static void on_event(uv_poll_t *poll, int status, int events)
{
	struct question *q = poll->data;
	int rc = status;

	if (status >= 0 && q->head_sent < q->head_size)
		rc = question_send(q);
	else if (status >= 0)
		answer_read(q);
	if (rc < 0)
		failed(q, strerrordesc_np(-rc));
}

static int question_begin(struct question *q)
{
	q->asked_ns = now_monotonic_ns();
	http_ask_begin(&q->ask, ANSWER_BYTES_MAX);
	q->head_size = http_ask_head(q->head, sizeof(q->head), "GET", q->path, 0);
	q->head_sent = 0;
	q->fd = door_connect(&q->upstream->exporter->door);
	int rc = q->fd;
	if (rc >= 0)
		rc = uv_poll_init(&q->upstream->exporter->door.loop, &q->poll, q->fd);
	if (rc < 0)
		return rc;
	q->open = true;
	q->poll.data = q;
	return question_send(q);
}

bool upstream_ask(struct upstream *u, struct reader *reader, bool all, struct page **ret)
{
	struct question *q = &u->question[all];
	struct wanting *wanting = NULL;
	bool young = q->page && now_monotonic_ns() - q->page_ns < PAGE_YOUNG_NS;

	*ret = young ? q->page : NULL;
	if (young)
		q->page->uses++;
	/* A handle that is being closed is free in the next round of the loop: upstream_tick(). */
	int rc = young || q->fd >= 0 ? 0 : question_begin(q);
	if (rc < 0)
		failed(q, strerrordesc_np(-rc));
	if (young || rc < 0 || !(wanting = malloc(sizeof(*wanting))))
		return true;
	*wanting = (struct wanting){.next = q->wanting, .reader = reader};
	q->wanting = wanting;
	return false;
}

void upstream_forget(struct upstream *u, const struct reader *reader)
{
	for (unsigned i = 0; i < ARRAY_SIZE(u->question); i++)
		for (struct wanting **at = &u->question[i].wanting, *w; (w = *at);) {
			if (w->reader == reader) {
				*at = w->next;
				free(w);
			} else {
				at = &w->next;
			}
		}
}

void upstream_tick(struct upstream *u)
{
	for (unsigned i = 0; i < ARRAY_SIZE(u->question); i++) {
		struct question *q = &u->question[i];

		if (q->fd >= 0 && now_monotonic_ns() - q->asked_ns > ANSWER_MOST_NS) {
			failed(q, "it does not answer in time");
		} else if (q->fd < 0 && q->wanting) {
			int rc = question_begin(q);
			if (rc < 0)
				failed(q, strerrordesc_np(-rc));
		}
	}
}

struct upstream *upstream_new(struct exporter *exporter)
{
	struct upstream *u = calloc(1, sizeof(*u));

	if (!u)
		return NULL;
	u->exporter = exporter;
	u->question[false].path = "/metrics?sessions=none";
	u->question[true].path = "/metrics";
	for (unsigned i = 0; i < ARRAY_SIZE(u->question); i++) {
		u->question[i].upstream = u;
		u->question[i].fd = -1;
	}
	return u;
}

void upstream_stop(struct upstream *u)
{
	for (unsigned i = 0; i < ARRAY_SIZE(u->question); i++)
		asking_end(&u->question[i]);
}

void upstream_free(struct upstream *u)
{
	for (unsigned i = 0; u && i < ARRAY_SIZE(u->question); i++)
		upstream_page_release(u->question[i].page);
	free(u);
}
