/* Descriptors that clients send along with their messages (SCM_RIGHTS). The daemon wants none, and
 * must not close one either. A close can take as long as its sender likes, say by SO_LINGER or by a
 * file system of its own, and the loop would wait meanwhile.
 *
 * Linux 6.16 and later refuse them for a socket (SO_PASSRIGHTS). Elsewhere they are received and
 * handed to a thread, the holder, which has a table of descriptors of its own. It closes nothing:
 * it ends, and a thread that is ending does not linger. Descriptors of which a file system delays
 * the close even then hold up that thread, and no later holder. Loop thread only. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Has the kernel refuse descriptors on this Unix socket and, where it listens, on the connections
 * made from then on: their senders get EPERM. False: this kernel cannot, and for all sockets what
 * follows holds. */
bool rights_refuse(int fd);

/* recv(2), but that descriptors which came along are dropped without a wait. */
ssize_t rights_recv(int fd, void *buf, size_t size, int flags);

/* Before a connection is closed: its peer can send nothing more, and what was sent and not received
 * is dropped. */
void rights_drain(int fd);

/* Closes a connection that nobody has read from. */
void rights_close(int *fd);

/* Closes a listening socket. Connections that nobody accepted may have descriptors: where those
 * cannot be refused, the socket stays open until the process ends. */
void rights_close_listener(int *fd);

/* Called each second: ends the holder that was used. */
void rights_tick(void);
