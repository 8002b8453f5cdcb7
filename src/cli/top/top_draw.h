/* The screen of `carve top`: curses, and nothing of the daemon. Not for several threads. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct top_view;

/* Shown beside the view. */
struct top_status {
	const char *trouble; /* why the daemon is not heard of; NULL: it is */
	int64_t silent_s;    /* for how long */
};

/* Takes the terminal. False: it cannot be used. */
bool top_screen_open(void);
/* Gives it back as it was. */
void top_screen_close(void);
/* Gives it back for a while, and takes it again. */
void top_screen_leave(void);
void top_screen_enter(void);
/* The window has another size now. */
void top_screen_resized(void);
/* Draws everything anew on the next draw: something else wrote on the terminal. */
void top_screen_disturbed(void);
void top_screen_draw(struct top_view *view, const struct top_status *status);
/* The next key: a character, an enum top_key, or 0: none is there. */
int top_screen_key(void);
