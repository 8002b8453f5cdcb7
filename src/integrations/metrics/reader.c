/* Readers: connections to the TCP socket.
 *
 * A reader passes through these states, and again from READS on with each further scrape:
 *
 *   SHAKES   the handshake of TLS, where it is configured
 *   READS    its request comes in
 *   WAITS    carved is asked for the page (upstream.c)
 *   WRITES   the answer goes out
 *
 * Nothing here waits: whatever would block goes on when the loop says that the socket is ready. A
 * reader that has not proved who it is has 10 s for its first request, and gives way to newer ones
 * when all places are taken. So programs that open connections keep no reader out that proves who
 * it is, unless they open them faster than the reader can send its request. */
#include "integrations/metrics/reader.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/macros.h"
#include "daemon/host/log.h"
#include "daemon/metrics/text.h"
#include "integrations/metrics/exporter.h"
#include "integrations/metrics/request.h"
#include "integrations/metrics/tls.h"
#include "integrations/metrics/upstream.h"

#define READ_BYTES 16384u

enum reader_state { READER_SHAKES, READER_READS, READER_WAITS, READER_WRITES };

struct reader {
	struct exporter *exporter;
	struct reader *next, *previous;
	int fd;
	uv_poll_t poll;
	struct tls_session *tls;
	enum reader_state state;
	bool proved; /* a scrape of it was taken */
	bool last;   /* no request follows */
	uint64_t opened_ns, moved_ns;
	struct request request;
	char head[320];
	size_t head_size, sent;
	const char *words; /* the body, where it is no page */
	struct page *page;
};

static void reader_go_on(struct reader *r);

/* ---- the end ------------------------------------------------------------------------------- */

static void on_closed(uv_handle_t *handle)
{
	struct reader *r = handle->data;

	close_fd(&r->fd);
	free(r);
}

static void reader_close(struct reader *r)
{
	struct exporter *e = r->exporter;

	upstream_forget(e->upstream, r);
	if (r->next)
		r->next->previous = r->previous;
	*(r->previous ? &r->previous->next : &e->readers) = r->next;
	e->reader_count--;
	upstream_page_release(steal_ptr(&r->page));
	tls_session_free(steal_ptr(&r->tls));
	uv_poll_stop(&r->poll);
	uv_close((uv_handle_t *)&r->poll, on_closed);
}

static void reader_refuse(struct reader *r, enum refusal why)
{
	r->exporter->refused[why]++;
	reader_close(r);
}

/* ---- answers ------------------------------------------------------------------------------- */

static void answer_begin(struct reader *r, unsigned status, const char *words, struct page *page)
{
	r->last |= !http_should_keep_alive(&r->request.parser) || status >= 400;
	r->words = words;
	r->page = page;
	r->sent = 0;
	r->state = READER_WRITES;
	r->head_size = (size_t)snprintf(
		r->head, sizeof(r->head),
		"HTTP/1.1 %u %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: "
		"%s\r\n\r\n",
		status, http_status_str(status), page ? METRICS_CONTENT_TYPE : "text/plain",
		page ? page->size : strlen(words), r->last ? "close" : "keep-alive");
}

static void page_answer(struct reader *r, struct page *page)
{
	if (page) {
		r->exporter->scrapes++;
		answer_begin(r, HTTP_STATUS_OK, NULL, page);
	} else {
		r->exporter->unanswered++;
		answer_begin(r, HTTP_STATUS_SERVICE_UNAVAILABLE, "carved does not answer\n", NULL);
	}
	r->moved_ns = now_monotonic_ns();
}

void reader_page(struct reader *r, struct page *page)
{
	page_answer(r, page);
	reader_go_on(r);
}

static bool token_is_right(const struct reader *r)
{
	const struct exporter *e = r->exporter;

	return r->request.token_size == e->token_size &&
	       !CRYPTO_memcmp(r->request.token, e->token, e->token_size);
}

/* Counts a reader that may not see the page, and returns the words for it; NULL: it may. */
static const char *refused_words(struct reader *r)
{
	struct exporter *e = r->exporter;

	if (e->config.client_ca[0] && !(r->tls && tls_session_proved(r->tls))) {
		e->refused[REFUSED_CERTIFICATE]++;
		return "this takes a client certificate that metrics.tls.client_ca has signed\n";
	}
	if (e->config.token_file[0] && !token_is_right(r)) {
		e->refused[REFUSED_TOKEN]++;
		return "this takes the token of metrics.token_file, as \"Authorization: Bearer "
		       "TOKEN\"\n";
	}
	return NULL;
}

/* Whether there is an answer now; else reader_page() comes later. */
static bool request_answer(struct reader *r)
{
	const struct request *request = &r->request;
	const char *refused = request->step == REQUEST_READY ? refused_words(r) : NULL;
	bool all = metrics_config_proves(&r->exporter->config);
	struct page *page = NULL;

	if (request->step == REQUEST_WRONG) {
		answer_begin(r, request->status, "this is no request that carve-metrics takes\n",
			     NULL);
	} else if (refused) {
		answer_begin(r, HTTP_STATUS_FORBIDDEN, refused, NULL);
	} else if (!request_is_for(request, "/metrics")) {
		answer_begin(r, HTTP_STATUS_NOT_FOUND, "there is /metrics\n", NULL);
	} else if (request->parser.method != HTTP_GET && request->parser.method != HTTP_HEAD) {
		answer_begin(r, HTTP_STATUS_METHOD_NOT_ALLOWED, "/metrics takes GET\n", NULL);
	} else {
		r->proved = true;
		r->state = READER_WAITS;
		uv_poll_stop(&r->poll);
		if (!upstream_ask(r->exporter->upstream, r, all, &page))
			return false;
		page_answer(r, page);
	}
	return true;
}

/* ---- the socket ---------------------------------------------------------------------------- */

static void on_event(uv_poll_t *poll, int status, int events);

static void await(struct reader *r, bool writes)
{
	if (uv_poll_start(&r->poll, writes ? UV_WRITABLE : UV_READABLE, on_event) < 0)
		reader_close(r);
}

static ssize_t bytes_read(struct reader *r, void *data, size_t size, bool *writes)
{
	if (r->tls)
		return tls_session_read(r->tls, data, size, writes);
	ssize_t n = recv(r->fd, data, size, MSG_DONTWAIT);
	return n < 0 ? -errno : n;
}

static ssize_t bytes_write(struct reader *r, const void *data, size_t size, bool *writes)
{
	*writes = true;
	if (r->tls)
		return tls_session_write(r->tls, data, size, writes);
	ssize_t n = send(r->fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
	return n < 0 ? -errno : n;
}

/* Whether the reader is there still, and can go on at once. */
static bool shake(struct reader *r)
{
	bool writes = false;
	int rc = tls_session_shake(r->tls, &writes);

	if (rc == -EAGAIN)
		await(r, writes);
	else if (rc < 0)
		reader_refuse(r, REFUSED_HANDSHAKE);
	else
		r->state = READER_READS;
	return rc == 0;
}

/* Requests that are sent ahead are not answered: the connection ends after the first. */
static bool request_read(struct reader *r)
{
	char data[READ_BYTES];
	bool writes = false;
	size_t taken;
	ssize_t n = bytes_read(r, data, sizeof(data), &writes);

	if (n == -EAGAIN || n == -EINTR) {
		await(r, writes);
		return false;
	}
	if (n <= 0) {
		reader_close(r);
		return false;
	}
	r->moved_ns = now_monotonic_ns();
	if (request_take(&r->request, data, (size_t)n, &taken) == REQUEST_MORE)
		return true;
	r->last = taken < (size_t)n;
	return request_answer(r);
}

/* The next part of the answer; NULL: all is sent. */
static const char *answer_part(const struct reader *r, size_t *ret_size)
{
	const char *body = r->page ? r->page->text : r->words;
	size_t size = r->page ? r->page->size : strlen(r->words), sent = r->sent;

	if (sent < r->head_size) {
		*ret_size = r->head_size - sent;
		return r->head + sent;
	}
	sent -= r->head_size;
	*ret_size = size - sent;
	return sent < size && r->request.parser.method != HTTP_HEAD ? body + sent : NULL;
}

static bool answer_write(struct reader *r)
{
	size_t size;
	const char *part = answer_part(r, &size);
	bool writes = true;
	ssize_t n = part ? bytes_write(r, part, size, &writes) : 0;

	if (n == -EAGAIN || n == -EINTR) {
		await(r, writes);
		return false;
	}
	if (part && n <= 0) {
		reader_close(r);
		return false;
	}
	if (part) {
		r->sent += (size_t)n;
		r->moved_ns = now_monotonic_ns();
		return true;
	}
	upstream_page_release(steal_ptr(&r->page));
	if (r->last) {
		reader_close(r);
		return false;
	}
	request_begin(&r->request);
	r->state = READER_READS;
	await(r, false);
	return false;
}

static void reader_go_on(struct reader *r)
{
	bool more = true;

	while (more)
		more = r->state == READER_SHAKES   ? shake(r)
		       : r->state == READER_READS  ? request_read(r)
		       : r->state == READER_WRITES ? answer_write(r)
						   : false;
}

static void on_event(uv_poll_t *poll, int status, int events)
{
	struct reader *r = poll->data;

	if (status < 0)
		reader_close(r);
	else
		reader_go_on(r);
}

/* ---- new ones, and old ones ---------------------------------------------------------------- */

/* Makes a place where there is none. Where readers prove nothing, none of them is spared. */
static bool place_make(struct exporter *e)
{
	bool proves = metrics_config_proves(&e->config);
	struct reader *oldest = NULL;

	if (e->reader_count < READERS_MAX)
		return true;
	for (struct reader *r = e->readers; r; r = r->next)
		oldest = r->proved && proves ? oldest : r;
	if (oldest)
		reader_refuse(oldest, REFUSED_FULL);
	else
		e->refused[REFUSED_FULL]++;
	return oldest;
}

void reader_open(struct exporter *e, int fd)
{
	struct reader *r = place_make(e) ? calloc(1, sizeof(*r)) : NULL;

	if (!r || uv_poll_init(&e->loop, &r->poll, fd) < 0) {
		free(r);
		close(fd);
		return;
	}
	r->exporter = e;
	r->fd = fd;
	r->next = e->readers;
	r->poll.data = r;
	r->opened_ns = r->moved_ns = now_monotonic_ns();
	r->state = e->tls ? READER_SHAKES : READER_READS;
	if (r->next)
		r->next->previous = r;
	e->readers = r;
	e->reader_count++;
	request_begin(&r->request);
	if (e->tls && !(r->tls = tls_session_new(e->tls, fd)))
		reader_close(r);
	else
		await(r, false);
}

void readers_tick(struct exporter *e)
{
	uint64_t now = now_monotonic_ns();

	for (struct reader *r = e->readers, *next; r; r = next) {
		next = r->next;
		bool idle = r->proved && r->state == READER_READS;
		bool slow = r->state == READER_WRITES && now - r->moved_ns > READER_PROOF_NS;

		if (slow || (!r->proved && now - r->opened_ns > READER_PROOF_NS))
			reader_refuse(r, REFUSED_SLOW);
		else if (idle && now - r->moved_ns > READER_SILENCE_NS)
			reader_close(r);
	}
}

void readers_close(struct exporter *e)
{
	while (e->readers)
		reader_close(e->readers);
}
