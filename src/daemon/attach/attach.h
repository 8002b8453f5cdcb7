/* The attach socket: how processes of a session get its ledger. Messages are those of
 * proto/attach.h, from anybody who can reach the socket: everything in them is checked. */
#pragma once

#include <stdint.h>

struct attach_connection;
struct attach_server;
struct fair;
struct sessions;

/* Serves the listening SOCK_SEQPACKET socket `fd`, which becomes the server's. Users take `turns`,
 * which somebody has to run in each pass of the loop (fair_run()). 0 or -errno. */
int attach_server_start(struct sessions *sessions, struct fair *turns, int fd,
			struct attach_server **ret);
void attach_server_stop(struct attach_server *server);
/* Open connections. */
unsigned attach_connections(const struct attach_server *server);
/* CLOCK_MONOTONIC, when anybody last said something; 0: nobody did. */
uint64_t attach_heard_ns(const struct attach_server *server);

/* The process of this connection is gone from the books: the connection stays, without it. */
void attach_forget(struct attach_connection *connection);
/* For looking whether its other end is closed; and what is done then, where the loop has not come
 * to it yet. */
int attach_descriptor(const struct attach_connection *connection);
void attach_hang_up(struct attach_connection *connection);
/* Answers those who waited for memory of processes that were ending, where that is over. */
void attach_swept(struct attach_server *server);
/* A sample is in: answers those who asked to be settled. */
void attach_sampled(struct attach_server *server);
/* Ends connections that have said nothing for too long. Called about once a second. */
void attach_tick(struct attach_server *server);
