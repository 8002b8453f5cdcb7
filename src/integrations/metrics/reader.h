/* Readers: connections to the TCP socket of carve-metrics. */
#pragma once

struct exporter;
struct page;
struct reader;

void reader_open(struct exporter *exporter, int fd);
/* Each second. */
void readers_tick(struct exporter *exporter);
void readers_close(struct exporter *exporter);
/* The page that a reader waits for is there, or cannot be had (NULL). */
void reader_page(struct reader *reader, struct page *page);
