/* Files of the daemon that somebody removed, as cleaners of /tmp do. If they were looked at once
 * only, at the start, each command would miss them, and so would the next daemon. */
#pragma once

#include <stdint.h>

#define VANISHED_NAME_SIZE 48
#define VANISHED_ERROR_SIZE 256

struct node;

/* One of them was missed; for people, until the daemon ends. */
struct vanished {
	uint32_t count;                /* how often one was made anew */
	char file[VANISHED_NAME_SIZE]; /* the last one */
	int64_t at;                    /* CLOCK_REALTIME, ns: when it was missed */
	uint32_t asked;                /* those that the warden is making anew, a bit each */
	const char *stop;              /* why the daemon is to stop; NULL: it goes on */
	uint32_t failing;              /* those that cannot be made anew, a bit each */
	char error[VANISHED_ERROR_SIZE];
};

/* Notes the options of the daemon for the next one, which is started where this one is killed. */
void node_start_note(struct node *node);
/* Called each second: makes anew what is not there, and says so. Where another has taken the place,
 * the daemon is to stop: returns why, else NULL. */
const char *vanished_tick(struct node *node);
