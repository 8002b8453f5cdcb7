/* Files of the daemon that somebody removed, as cleaners of /tmp do. The daemon looks once a second
 * whether they are there, and ends to be started anew where one is not: the start makes them all.
 * Databases that were removed are left to the next daemon as copies (state.h). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define FILES_NAME_SIZE 48

struct node;

/* The file that was removed last; for people, as long as the supervisor lives. */
struct files_removed {
	uint32_t count; /* how often a file was made anew */
	uint32_t told;  /* so many of these times are in the log */
	int64_t at;     /* CLOCK_REALTIME, ns: when it was missed */
	char file[FILES_NAME_SIZE];
};

struct files {
	/* Those that were there at the first look, a bit each. A file that the start could not make
	 * is not waited for: the daemon would end again and again. */
	uint32_t there;
	struct files_removed removed;
	bool told_now; /* this start told of some */
};

/* Called once there is a keep: takes up what the daemon before noted, and logs it. */
void files_note_take(struct node *node);
/* Called once the daemon has made its files. */
void files_begin(struct node *node);
/* Called each second. Why the daemon is to be started anew, or NULL. */
const char *files_look(struct node *node);
/* Whether the whole directory is gone, and nobody needs it: a host that was simulated has ended, or
 * a user cleans up. */
bool files_are_unwanted(const struct node *node);
