/* The things of which the daemon has less than a service would, as whoever started it had: limits
 * of resources that could not be lifted, a low priority. Any thread. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

struct error;

/* A daemon that may open fewer descriptors does not start: it would serve no program. */
#define LIMITED_DESCRIPTORS_LEAST 48

/* A list of texts for people, owned by the caller; looked at anew with each call. NULL: no memory.
 */
json_t *limited_list(void);
/* Likewise, of what is worth knowing only. */
json_t *limited_notes(void);
/* Logs each of them. */
void limited_log(void);
/* Raises the limit of descriptors as far as it may be. 0, or negative with *err set: too few. */
int limited_descriptors_raise(struct error *err);
/* Where there are few: the last ones, which are kept for questions to the daemon. 0: there are
 * enough. */
unsigned limited_last(void);
/* Whether a descriptor that was just opened for a program is one of them. */
bool limited_is_last(int fd);
/* Words for -EFBIG. */
#define LIMITED_FILE_SIZE_TEXT "carved may write no larger files (ulimit -f)"
/* Words for -EMFILE: `usual`, and the limit where it is low (ulimit -n). Loop thread; valid until
 * the next call. */
const char *limited_descriptors_text(const char *usual);
