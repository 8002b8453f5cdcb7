/* The files of jobs, which their shims leave in a directory of each user's (proto/shim.h). */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct job_record;
struct queues;

/* The path of a file of a job's last attempt: DIR/NAME with that suffix. */
void job_file(const struct queues *q, const struct job_record *record, const char *suffix,
	      char buf[static PATH_MAX]);
/* Whether somebody removed the user's directory. */
bool job_directory_missing(const struct queues *q, uid_t uid);
/* Whether files can be made in the user's directory, as far as can be seen: 0 or -errno. */
int job_files_look(const struct queues *q, uid_t uid);
/* The highest number of a job of which there is a file, or 0. */
int64_t job_files_last(const struct queues *q);
/* Reads a file of the job's last attempt. Its user can have replaced it by anything. So no link is
 * followed, nothing is waited for, and the file must be that user's. `text` gets its bytes and a
 * NUL. Its length, or -errno (-EPERM: the file is another user's, -EFBIG: it is no smaller than
 * `size`). */
ssize_t job_file_read(const struct queues *q, const struct job_record *record, const char *suffix,
		      char *text, size_t size);
/* A part of a file: `size` bytes from `from` on, in all `length`. It is asked for with `bytes` of
 * the caller's that have room for `size`; `from` < 0: the last part. */
struct job_file_part {
	int64_t from, length;
	char *bytes;
	size_t size;
};
/* Reads a part of a job's file of any length. It never waits for a disk: bytes that are not in
 * memory are left out of the part, and are read meanwhile. A file that is not there has no bytes.
 * 0 or -errno. */
int job_file_read_part(const struct queues *q, const struct job_record *record, const char *suffix,
		       struct job_file_part *part);
/* Whether a process holds a lock (flock) of such a file. */
bool job_file_is_locked(const struct queues *q, const struct job_record *record,
			const char *suffix);
/* The directory of users' directories of files. */
const char *job_directory(const struct queues *q);
/* The number that is the text of a symbolic link of theirs; 0: there is none. */
int job_file_link(const struct queues *q, const struct job_record *record, const char *suffix);
/* Removes those of them that are there. */
void job_files_remove(const struct queues *q, const struct job_record *record, uint32_t files);
/* Makes the user's directory, of this process's own user, if it is missing. `buf` gets its path. 0
 * or -errno. */
int job_directory_make(const struct queues *q, uid_t uid, char buf[static PATH_MAX]);
/* Makes the directories of jobs that run, where somebody removed them. Each second. */
void job_directories_look(struct queues *q);
