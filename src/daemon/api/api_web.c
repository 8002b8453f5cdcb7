/* The page asks for lists as `carve top` does. It learns when from server-sent events: each answer
 * is one event, and the browser asks again at once. So an open page is one call that waits, as
 * calls for an agent's jobs are, and needs nothing else of the HTTP server. */
#include "daemon/api/api_web.h"

#include <string.h>

#include "base/macros.h"
#include "daemon/api/answer.h"
#include "daemon/api/http.h"
#include "daemon/host/listeners.h"
#include "daemon/node.h"
#include "daemon/session/sessions.h"
#include "web/files.h"

/* Seconds between two news: the least, and those while there are no sessions. A browser asks again
 * a second after each. */
#define NEWS_S 1u
#define NEWS_MOST_S 10u
/* A look of a page at all lists takes the loop so long, and so much longer for each session in them
 * (bench/page.py: 23 ms with 200 sessions). All open pages together take 1% of a core. So they
 * have news less often the more of them there are, but at least every NEWS_MOST_S. */
#define LOOK_US 3000u
#define LOOK_SESSION_US 120u
#define LOOKS_PART 100u

/* All that the page loads is here, and it runs no script that a name could have brought along. */
#define PAGE_FIELDS                                                                          \
	"Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; " \
	"img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "          \
	"frame-ancestors 'none'\r\n"                                                         \
	"X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"                \
	"Cross-Origin-Opener-Policy: same-origin\r\nCache-Control: no-cache\r\n"

static struct listeners listeners;
static unsigned idle_s; /* since the last news */

void api_get_page(struct call *call, const char *unused)
{
	api_get_page_file(call, "page.html");
}

void api_get_page_file(struct call *call, const char *name)
{
	for (const struct web_file *file = web_files; file->name; file++)
		if (!strcmp(file->name, name)) {
			call_reply_as(call, HTTP_STATUS_OK,
				      &(struct call_form){file->type, PAGE_FIELDS},
				      strdup(file->text));
			return;
		}
	answer_failed(call, HTTP_STATUS_NOT_FOUND, EXIT_CODE_USAGE, "the page has no file %.64s",
		      name);
}

static void on_gone(struct call *call)
{
	listeners_remove(&listeners, call);
}

static void news_reply(struct call *call, void *unused)
{
	static const struct call_form form = {"text/event-stream", "Cache-Control: no-store\r\n"};

	call_reply_as(call, HTTP_STATUS_OK, &form,
		      strdup("retry: 1000\nevent: news\ndata: {}\n\n"));
}

static void on_news(void *call)
{
	call_fairly(call, news_reply, NULL);
}

void api_get_news(struct call *call, const char *unused)
{
	if (listeners_add(&listeners, on_news, call) == 0)
		call_defer(call, on_gone);
	else
		call_reply_text(call, HTTP_STATUS_INTERNAL_SERVER_ERROR, NULL);
}

static unsigned pause_s(const struct node *node)
{
	uint64_t look_us = LOOK_US + (uint64_t)LOOK_SESSION_US * node->sessions.count;

	if (!node->sessions.count && !node->waiting.budget.total)
		return NEWS_MOST_S;
	uint64_t fit_s = listeners_count(&listeners) * look_us * LOOKS_PART / 1000000;
	return (unsigned)MIN(MAX(fit_s, NEWS_S), NEWS_MOST_S);
}

void api_web_tick(struct node *node)
{
	if (++idle_s < pause_s(node))
		return;
	idle_s = 0;
	listeners_tell(&listeners);
}
