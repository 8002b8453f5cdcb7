/* Messages of one size, and descriptors with them, over Unix sockets that keep messages apart. libc
 * only. */
#pragma once

#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

#define DESCRIPTORS_MAX 8

struct sockaddr_un;

/* A descriptor of the process that connected, as the kernel noted it for the connection. The
 * caller's, or -errno: -ENOPROTOOPT where the kernel cannot say (before 6.5), and -ESRCH where that
 * process has ended and was waited for. */
int socket_peer_pidfd(int fd);
/* 0 where that process is there. A child of that process may hold the connection for longer, and
 * another process may have its PID. The errors are those of socket_peer_pidfd(). */
int socket_peer_lives(int fd);

/* Sends `size` bytes and `count` descriptors (DESCRIPTORS_MAX at most), without waiting, to whoever
 * is connected, or to `to` where that is not NULL. 0 or -errno. */
int descriptors_send_to(int fd, const struct sockaddr_un *to, socklen_t to_size, const void *data,
			size_t size, const int *descriptors, unsigned count);
int descriptors_send(int fd, const void *data, size_t size, const int *descriptors, unsigned count);
/* The same, but that it waits until the other side has room. */
int descriptors_send_wait(int fd, const void *data, size_t size, const int *descriptors,
			  unsigned count);
/* Receives a message, without waiting, and one descriptor at most: *ret_descriptor is the caller's,
 * or -1; the kernel closes what else was sent. The message's size; 0: the other side hung up, or
 * sent an empty one; -errno: -EAGAIN there is none, -EPROTO it is longer than `size`. */
ssize_t descriptor_receive(int fd, void *data, size_t size, int *ret_descriptor);
/* The same with up to `room` (DESCRIPTORS_MAX at most) descriptors: ret[] has those that came, then
 * -1. */
ssize_t descriptors_receive(int fd, void *data, size_t size, int *ret, unsigned room);
