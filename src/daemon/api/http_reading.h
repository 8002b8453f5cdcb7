/* Users take turns in what libmicrohttpd reads (host/fair.h). One server a process. Loop thread
 * only. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "daemon/host/fair.h"

struct MHD_Connection;
struct MHD_Daemon;

/* The reading of a connection, within what is known of it. */
struct http_reading {
	struct MHD_Connection *connection;
	int fd;
	uid_t owner;
	/* It was not read from in this run of libmicrohttpd; then it is in a line for its turn. */
	bool late;
	struct http_reading *next_late;
	struct fair_work turn;
};

/* `resumed` is set where a connection goes on, and libmicrohttpd has to run once more. */
void http_reading_begin(struct MHD_Daemon *mhd, struct fair *turns, bool *resumed);
/* From here on each connection is read from whenever it is ready, as before it stops. */
void http_reading_end(void);
/* A connection of libmicrohttpd's, until it is closed; its first three fields are set. */
void http_reading_add(struct http_reading *open);
void http_reading_remove(struct http_reading *open);
/* Reads from one that libmicrohttpd was just given, as in its turn. */
void http_reading_first(int fd);
/* One that waits for its turn goes on at once. */
void http_reading_release(struct http_reading *open);
/* As MHD_run(): reads while some of the budget is left. The rest then stands in lines, for
 * fair_run(). */
void http_reading_run(void);
