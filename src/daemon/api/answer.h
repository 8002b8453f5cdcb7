/* Shared by the parts of the API: errors as answers, bodies as JSON. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct call;
struct error;

/* Answers with an error; `code` is an enum exit_code. */
void answer_failed(struct call *call, unsigned status, int code, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* The call's argument `uid`, the number of a user whose things it is about; (uid_t)-1: it has none.
 * False: answered, as it is no number, or the caller may not see what that user has. */
bool answer_uid_argument(struct call *call, uid_t *ret);
/* The HTTP status that goes with an error's exit code. */
unsigned answer_status(const struct error *err);
/* The call's body; NULL with *err where it is not JSON. */
json_t *answer_body(struct call *call, struct error *err);

/* Bytes, nanoseconds, counts. */
static inline json_t *answer_number(uint64_t number)
{
	return json_integer((json_int_t)number);
}

/* Reads the number at *at, as in the place in a list that a client names. Then *at goes on behind
 * it and the `end` (0: the text's) that must follow. False: there is none. */
bool answer_number_take(const char **at, char end, int64_t *ret);
