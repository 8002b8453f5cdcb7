/* Requests that wait for something to happen, and are called once when it does. Loop thread. */
#pragma once

struct listener;

struct listeners {
	struct listener *first;   /* the last that came */
	struct listener *telling; /* those that are being called */
};

typedef void (*listener_cb)(void *arg);
/* 0 or -ENOMEM. */
int listeners_add(struct listeners *listeners, listener_cb cb, void *arg);
/* The listeners with this `arg` are not called any more. */
void listeners_remove(struct listeners *listeners, const void *arg);
unsigned listeners_count(const struct listeners *listeners);
/* Calls each, and forgets them. A callback may add listeners, which wait for the next call. */
void listeners_tell(struct listeners *listeners);
/* Forgets all, and calls nobody. */
void listeners_free(struct listeners *listeners);
