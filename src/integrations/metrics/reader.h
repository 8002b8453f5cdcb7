/* Readers: connections to the TCP socket of carve-metrics. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "integrations/door/door.h"
#include "integrations/metrics/request.h"

struct page;

enum reader_state { READER_READS, READER_WAITS, READER_WRITES };

struct reader {
	struct visitor visitor; /* first, so that the visitor leads to its reader */
	bool begun;             /* its first request was begun */
	enum reader_state state;
	bool last; /* no request follows */
	struct request request;
	char head[320];
	size_t head_size, sent;
	const char *words; /* the body, where it is no page */
	struct page *page;
};

#define READER_SIZE sizeof(struct reader)

/* The functions of struct door_kind. */
void reader_go_on(struct visitor *visitor);
void reader_gone(struct visitor *visitor);
bool reader_is_over(struct visitor *visitor, uint64_t now);
/* The page that a reader waits for is there, or cannot be had (NULL). */
void reader_page(struct reader *reader, struct page *page);
