/* Asks carved for its metrics, at its Unix socket. All readers that ask within a second have one
 * answer, so that readers who ask often cost the daemon nothing more. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct exporter;
struct reader;
struct upstream;

/* The text of an answer, which several readers send at a time. */
struct page {
	unsigned uses;
	size_t size;
	char *text;
};

/* Takes NULL. */
void upstream_page_release(struct page *page);

/* NULL: no memory. */
struct upstream *upstream_new(struct exporter *exporter);
/* Once the loop has ended. */
void upstream_free(struct upstream *upstream);
/* Whether the page is there now, or cannot be had (*ret is NULL); it becomes the caller's. Else
 * reader_page() is called later. `all`: with the slices of all users. */
bool upstream_ask(struct upstream *upstream, struct reader *reader, bool all, struct page **ret);
/* The reader is gone. */
void upstream_forget(struct upstream *upstream, const struct reader *reader);
/* Each second: gives questions up that take too long. */
void upstream_tick(struct upstream *upstream);
void upstream_stop(struct upstream *upstream);
