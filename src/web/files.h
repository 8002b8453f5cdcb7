/* The files of the page, which are compiled into the daemon (embed.py). */
#pragma once

struct web_file {
	const char *name, *type; /* the type is HTTP's */
	const char *text;
};

/* A row without a name ends the table. */
extern const struct web_file web_files[];
