/* A message of proto/warden.h in memory: a request, and later its answer. */
#pragma once

#include <sys/types.h>

#include "core/turns.h"
#include "proto/warden.h"

struct warden_message {
	struct turn turn; /* a request's that waits; it is first */
	struct warden_message *next;
	int fd[WARDEN_DESCRIPTORS_MAX]; /* descriptors that go along, first ones first; -1: none */
	struct warden_head head;
	_Alignas(8) unsigned char data[WARDEN_SIZE_MAX]; /* directly behind the head */
};

_Static_assert(offsetof(struct warden_message, data) ==
		       offsetof(struct warden_message, head) + sizeof(struct warden_head),
	       "a message is received and sent as one piece");

/* An empty message; NULL: no memory. */
struct warden_message *warden_message_new(void);
/* Closes its descriptors. Takes NULL. */
void warden_message_free(struct warden_message *message);
/* 0; -EAGAIN: there is none; -EPIPE: the other side hung up; -EPROTO: it is broken. */
int warden_message_receive(int fd, struct warden_message *ret);
/* Without waiting. 0 or -errno. */
int warden_message_send(int fd, const struct warden_message *message);
/* Makes a request its own answer: an error (-errno), or `size` bytes of `data` and a descriptor
 * (-1: none), which becomes the message's. */
void warden_message_answer(struct warden_message *message, int rc, const void *data, size_t size,
			   int fd);
