/* Files of JSON that others read while they are replaced. */
#pragma once

#include <jansson.h>
#include <sys/types.h>

struct error;

#define JSON_FILE_MAX ((size_t)16 << 20)

/* Writes JSON to DIR/NAME.json so that readers see the old file or the whole new one, also after a
 * power cut. 0, or negative with *err. */
int json_file_write(const char *dir, const char *name, const json_t *json, mode_t mode,
		    struct error *err);
/* Likewise a new file that nobody reads yet, and that may be lost with a power cut: does not wait
 * for the disk. */
int json_file_make(const char *dir, const char *name, const json_t *json, mode_t mode,
		   struct error *err);
/* The value of JSON that a descriptor holds, of at most `most` bytes: a file may grow while it is
 * read. NULL: it is none. jansson's own json_loadfd() makes a system call for each byte. `flags`:
 * jansson's. The caller owns the result. */
json_t *json_fd_load(int fd, size_t most, size_t flags);
/* Reads a file of JSON_FILE_MAX bytes at most. 0 with *ret (owned by the caller), -ENOENT, or
 * negative with *err. */
int json_file_read(const char *dir, const char *name, json_t **ret, struct error *err);
/* 0 also where there is none; else negative with *err. */
int json_file_remove(const char *dir, const char *name, struct error *err);
