/* How far a reader of numbered items is, in a file: the number of the next item, and the ID of the
 * database whose numbers they are. One process at a time uses a file. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct error;

#define CURSOR_DATABASE_SIZE 64

struct cursor {
	const char *verb; /* that reads: "job events"; lent */
	int fd;           /* locked; -1: there is no file, and nothing is kept */
	char path[PATH_MAX];
	char database[CURSOR_DATABASE_SIZE]; /* "": the file is new */
	uint64_t next;
};

/* `path` NULL: `name` in the user's state directory. 0, or negative with *err: another process has
 * the file, or what is in it was not written here. */
int cursor_open(struct cursor *ret, const char *verb, const char *path, const char *name,
		struct error *err);
/* It is on the disk when this returns. 0, or negative with *err. */
int cursor_save(const struct cursor *cursor, struct error *err);
