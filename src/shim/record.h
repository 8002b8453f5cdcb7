/* The record that a shim leaves (proto/shim.h). */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include <sys/types.h>

/* The files NAME.SUFFIX of an attempt, in a directory of its user's (proto/shim.h). They are opened
 * by the directory's descriptor; the path is for programs that are told of it, and for the case
 * that the directory was removed. */
struct record_place {
	int dir_fd;
	const char *dir, *name;
};

/* Opens such a file to append to it, and makes it where there is none. No link is followed, and
 * what lies there and is not this user's alone is replaced. The descriptor, or -errno; -ENOENT: the
 * directory was removed. */
int record_file_open(const struct record_place *place, const char *suffix, mode_t mode);
/* Removes such a file, whatever it is. */
void record_file_remove(const struct record_place *place, const char *suffix);
/* Makes the directory anew where it was removed, or finds the one that was made. 0 or -errno. */
int record_directory_renew(struct record_place *place);

/* Makes the file, empty. The descriptor, or -errno. */
int record_open(const struct record_place *place);
/* Makes the file anew, with what was in it, where somebody removed it. 0 or -errno. */
int record_look(struct record_place *place, int *fd);
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
