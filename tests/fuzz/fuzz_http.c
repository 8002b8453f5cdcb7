/* Requests to the daemon, and answers of a daemon, or of whoever listens in its place, to the
 * command and the hook. The first byte says by how many bytes they come in, and what they are. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "http/http_ask.h"
#include "http/http_target.h"

#define BODY_MAX 4096u
#define TARGET_MAX 256u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_target(const struct http_reader *r)
{
	struct http_target target = {0};

	if (!r->target || r->target_size > r->target_max ||
	    http_target_parse(r->target, r->target_size, &target) < 0)
		return;
	if (strlen(http_target_path(&target)) > r->target_size)
		abort();
	(void)http_target_argument(&target, "wait");
	(void)http_target_argument(&target, "");
	http_target_free(&target);
}

static void check_step(const struct http_reader *r, enum http_step step, size_t size)
{
	if (step == HTTP_STEP_BODY && (!r->head_ended || r->part_size > size))
		abort();
	if (step == HTTP_STEP_WRONG && (r->status < 400 || r->status > 599 || !r->fault))
		abort();
	if (step == HTTP_STEP_END && !r->head_ended)
		abort();
	if (step == HTTP_STEP_HEAD)
		check_target(r);
}

static void fuzz_requests(const char *data, size_t size, size_t by)
{
	struct http_reader r;
	enum http_step step = HTTP_STEP_MORE;

	http_reader_begin(&r, HTTP_REQUEST, TARGET_MAX);
	for (size_t at = 0; at < size && step != HTTP_STEP_WRONG; at += by) {
		const char *piece = data + at;
		size_t left = MIN(by, size - at);
		unsigned idle = 0; /* steps that took nothing */

		while (left && step != HTTP_STEP_WRONG) {
			size_t before = left;

			step = http_reader_take(&r, &piece, &left);
			check_step(&r, step, before);
			idle = left == before ? idle + 1 : 0;
			if (idle > 2 && step != HTTP_STEP_WRONG)
				abort();
			if (step == HTTP_STEP_END)
				http_reader_next(&r);
		}
	}
	if (http_reader_close(&r) == HTTP_STEP_HEAD)
		abort();
	http_reader_free(&r);
}

static void fuzz_answer(const char *data, size_t size, size_t by)
{
	enum http_ask_progress progress = HTTP_ASK_MORE;
	struct http_ask ask;

	http_ask_begin(&ask, BODY_MAX);
	for (size_t at = 0; at < size && progress == HTTP_ASK_MORE; at += by)
		progress = http_ask_take(&ask, data + at, MIN(by, size - at));
	if (progress == HTTP_ASK_MORE && http_ask_take(&ask, NULL, 0) == HTTP_ASK_MORE)
		abort();
	if (ask.size > BODY_MAX ||
	    (progress == HTTP_ASK_ANSWERED && (ask.status < 200 || ask.status > 599)))
		abort();
	http_ask_free(&ask);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size)
		return 0;
	size_t by = 1 + data[0] % 64u;

	if (data[0] < 128)
		fuzz_requests((const char *)data + 1, size - 1, by);
	else
		fuzz_answer((const char *)data + 1, size - 1, by);
	return 0;
}
