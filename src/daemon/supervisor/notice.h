/* A worker's notice to its supervisor: a datagram of lines KEY=VALUE, as systemd takes them.
 * Nothing in it is trusted. Keys that are not listed here are passed over. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "daemon/host/supervisor.h"

#define NOTICE_SIZE 1024
#define NOTICE_STATUS_SIZE 512

struct notice {
	bool ready;    /* READY=1: it serves */
	bool stopping; /* STOPPING=1 */
	bool watchdog; /* WATCHDOG=1 */
	bool stores;   /* FDSTORE=1: a descriptor comes along, to be kept as `name` */
	bool removes;  /* FDSTOREREMOVE=1: what is kept as `name` is to be forgotten */
	char name[SUPERVISOR_NAME_SIZE];
	char status[NOTICE_STATUS_SIZE]; /* STATUS=: for people; "": none. Printable */
};

/* Reads `size` bytes. False: they are no notice, and nothing in them counts. */
bool notice_read(const char *text, size_t size, struct notice *ret);
