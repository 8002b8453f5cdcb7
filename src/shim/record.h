/* The record that a shim leaves (proto/shim.h). */
#pragma once

#include <jansson.h>
#include <stdbool.h>

/* DIR/NAME.record */
struct record_place {
	const char *dir, *name;
};

/* Makes the file, empty. The descriptor, or -errno. */
int record_open(const struct record_place *place);
/* Makes the file anew, with what was in it, where somebody removed it. 0 or -errno. */
int record_look(const struct record_place *place, int *fd);
/* Appends the object, which is the function's from now on, as a line. `synced`: it is on the disk
 * when this returns. Without it other processes see the line, and a power cut may lose it. Any
 * process that has the descriptor may append. 0 or -errno: nothing that counts was written. */
int record_add(int fd, json_t *object, bool synced);
/* The file is empty from now on, which needs no room: nothing ran. If that fails, it is as it was.
 */
void record_clear(int fd);
/* The end cannot be recorded, by that -errno: says so to whoever looks for the record. */
void record_give_up(const struct record_place *place, int rc);
/* The file's name is on the disk, too. 0 or -errno. */
int record_sync_name(const struct record_place *place);
