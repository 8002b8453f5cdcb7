/* Visitors: the connections to a door's TCP socket. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "integrations/door/door.h"

void visitor_open(struct door *door, int fd, const struct sockaddr_storage *address);
void visitor_close(struct visitor *visitor);
/* Counts why, and ends it. */
void visitor_refuse(struct visitor *visitor, enum refusal why);
/* Has visitor_go_on() called when the socket can be read, or written. */
void visitor_await(struct visitor *visitor, int events);
/* Until then nothing of it is looked at. */
void visitor_rest(struct visitor *visitor);
/* Like recv() and send(), with TLS where there is some. Returns a number of bytes, 0 where the
 * other side has ended, or -errno. After -EAGAIN it goes on when the socket can be read, or written
 * (*writes). */
ssize_t visitor_read(struct visitor *visitor, void *data, size_t size, bool *writes);
ssize_t visitor_write(struct visitor *visitor, const void *data, size_t size, bool *writes);
/* Each second. */
void visitors_tick(struct door *door);
void visitors_close(struct door *door);
