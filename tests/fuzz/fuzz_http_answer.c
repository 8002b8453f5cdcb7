/* The answer of a daemon, or of whoever listens in its place, to the command. */
#include <stdint.h>
#include <stdlib.h>

#include "client/http_answer.h"

#define BODY_MAX 4096u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const char *text, size_t size, bool ended)
{
	struct http_parsed parsed;
	enum http_progress progress = http_answer_parse(text, size, ended, BODY_MAX, &parsed);

	if (progress == HTTP_MORE && ended)
		abort();
	if (progress != HTTP_COMPLETE)
		return;
	if (parsed.status < 200 || parsed.status > 599 || parsed.body > size ||
	    parsed.size > size - parsed.body || parsed.size > BODY_MAX)
		abort();
}

/* As it comes in: each beginning of it, too. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	for (size_t part = 0; part <= size; part += 1 + size / 64) {
		check((const char *)data, part, false);
		check((const char *)data, part, true);
	}
	check((const char *)data, size, false);
	check((const char *)data, size, true);
	return 0;
}
