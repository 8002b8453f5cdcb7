/* Readers: connections to the TCP socket.
 *
 * A reader passes through these states, and again from READS on with each further scrape:
 *
 *   READS    its request comes in
 *   WAITS    carved is asked for the page (upstream.c)
 *   WRITES   the answer goes out
 *
 * The connection itself is a visitor of the door (door/visitor.h). A reader that has not proved who
 * it is has 10 s for its first request. */
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
#include "integrations/door/tls.h"
#include "integrations/door/visitor.h"
#include "integrations/metrics/exporter.h"
#include "integrations/metrics/request.h"
#include "integrations/metrics/upstream.h"

#define READ_BYTES 16384u

static struct exporter *exporter_here(const struct reader *r)
{
	return exporter_of(r->visitor.door);
}

static void go_on(struct reader *r);

void reader_gone(struct visitor *visitor)
{
	struct reader *r = (struct reader *)visitor;

	upstream_forget(exporter_here(r)->upstream, r);
	upstream_page_release(steal_ptr(&r->page));
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
		exporter_here(r)->scrapes++;
		answer_begin(r, HTTP_STATUS_OK, NULL, page);
	} else {
		exporter_here(r)->unanswered++;
		answer_begin(r, HTTP_STATUS_SERVICE_UNAVAILABLE, "carved does not answer\n", NULL);
	}
	r->visitor.moved_ns = now_monotonic_ns();
}

void reader_page(struct reader *r, struct page *page)
{
	page_answer(r, page);
	go_on(r);
}

static bool token_is_right(const struct reader *r)
{
	const struct door *e = r->visitor.door;

	return r->request.token_size == e->token_size &&
	       !CRYPTO_memcmp(r->request.token, e->token, e->token_size);
}

/* Counts a reader that may not see the page, and returns the words for it; NULL: it may. */
static const char *refused_words(struct reader *r)
{
	struct door *e = r->visitor.door;

	if (e->config.client_ca[0] && !(r->visitor.tls && tls_session_proved(r->visitor.tls))) {
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
	const struct door_config *config = &r->visitor.door->config;
	bool all = config->client_ca[0] || config->token_file[0];
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
		r->visitor.proved = true;
		r->state = READER_WAITS;
		visitor_rest(&r->visitor);
		if (!upstream_ask(exporter_here(r)->upstream, r, all, &page))
			return false;
		page_answer(r, page);
	}
	return true;
}

/* ---- the socket ---------------------------------------------------------------------------- */

static void await(struct reader *r, bool writes)
{
	visitor_await(&r->visitor, writes ? UV_WRITABLE : UV_READABLE);
}

/* Requests that are sent ahead are not answered: the connection ends after the first. */
static bool request_read(struct reader *r)
{
	char data[READ_BYTES];
	bool writes = false;
	size_t taken;
	ssize_t n = visitor_read(&r->visitor, data, sizeof(data), &writes);

	if (n == -EAGAIN || n == -EINTR) {
		await(r, writes);
		return false;
	}
	if (n <= 0) {
		visitor_close(&r->visitor);
		return false;
	}
	r->visitor.moved_ns = now_monotonic_ns();
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
	ssize_t n = part ? visitor_write(&r->visitor, part, size, &writes) : 0;

	if (n == -EAGAIN || n == -EINTR) {
		await(r, writes);
		return false;
	}
	if (part && n <= 0) {
		visitor_close(&r->visitor);
		return false;
	}
	if (part) {
		r->sent += (size_t)n;
		r->visitor.moved_ns = now_monotonic_ns();
		return true;
	}
	upstream_page_release(steal_ptr(&r->page));
	if (r->last) {
		visitor_close(&r->visitor);
		return false;
	}
	request_begin(&r->request);
	r->state = READER_READS;
	await(r, false);
	return false;
}

static void go_on(struct reader *r)
{
	bool more = true;

	while (more)
		more = r->state == READER_READS    ? request_read(r)
		       : r->state == READER_WRITES ? answer_write(r)
						   : false;
}

void reader_go_on(struct visitor *visitor)
{
	struct reader *r = (struct reader *)visitor;

	if (!r->begun)
		request_begin(&r->request);
	r->begun = true;
	go_on(r);
}

bool reader_is_over(struct visitor *visitor, uint64_t now)
{
	const struct reader *r = (const struct reader *)visitor;

	if (r->state == READER_WRITES && now - visitor->moved_ns > READER_PROOF_NS) {
		visitor->door->refused[REFUSED_SLOW]++;
		return true;
	}
	return visitor->proved && r->state == READER_READS &&
	       now - visitor->moved_ns > READER_SILENCE_NS;
}
