/* The page: its files, and the news that have it look again. Loop thread. */
#pragma once

struct call;
struct node;

/* The page itself, and another of its files by name. */
void api_get_page(struct call *call, const char *unused);
void api_get_page_file(struct call *call, const char *name);
/* Answers with a server-sent event when there may be something new to see. */
void api_get_news(struct call *call, const char *unused);
/* Called each second. */
void api_web_tick(struct node *node);
