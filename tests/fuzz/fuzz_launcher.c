/* A request to the launcher, an answer of it, and a warrant with its text. A request that passes
 * has what its operation takes and nothing else. A warrant that passes is the one that was given
 * out, byte for byte. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "guard/warrant.h"
#include "proto/launcher.h"
#include "proto/shim.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int right)
{
	if (!right)
		abort();
}

static void request_look(const uint8_t *data, size_t size)
{
	struct launcher_request r;

	memset(&r, 0xff, sizeof(r));
	memcpy(&r, data, MIN(size, sizeof(r)));
	if (launcher_request_check(&r, size) != 0)
		return;
	bool of_user = r.op == LAUNCHER_FILES || r.op == LAUNCHER_REMOVE;
	check(size == sizeof(r) && r.op >= LAUNCHER_VOUCH && r.op <= LAUNCHER_OVER);
	check((r.op == LAUNCHER_VOUCH) == (r.kind != 0) && r.kind <= WARRANT_PODS);
	check((r.op == LAUNCHER_FILES) == (r.attempt == 0));
	check(r.op != LAUNCHER_OVER || r.attempt <= LAUNCHER_OVER_MAX);
	check(r.job <= INT64_MAX && (r.op != LAUNCHER_FILES || !r.job));
	check((r.op == LAUNCHER_REMOVE) == (r.files != 0) && r.files <= SHIM_FILES_ALL);
	check(of_user || !r.user);
}

static void reply_look(const uint8_t *data, size_t size)
{
	struct launcher_reply r;

	memset(&r, 0xff, sizeof(r));
	memcpy(&r, data, MIN(size, sizeof(r)));
	check(launcher_reply_check(&r, size) != 0 || (size == sizeof(r) && r.error >= 0));
}

/* The input is laid over the warrant that was given out, two bytes saying where; the rest is the
 * text that comes with it. */
static void warrant_look(const uint8_t *data, size_t size)
{
	static const struct warrant_key key = {{0x0123456789abcdef, 0xfedcba9876543210}};
	static const char text[] = "{\"argv\": [\"true\"]}";
	struct warrant given = {.magic = WARRANT_MAGIC,
				.version = LAUNCHER_VERSION,
				.uid = 60101,
				.gid = 60101,
				.group_count = 1,
				.kind = WARRANT_JOB,
				.group = {60101}};

	check(warrant_sign(&key, &given, text, sizeof(text)) == 0);
	check(warrant_check(&key, &given, WARRANT_JOB, text, sizeof(text)) == 0);
	if (size < 4)
		return;
	struct warrant shown = given;
	size_t at = (data[0] | (size_t)data[1] << 8) % sizeof(shown), length = data[2];

	data += 3;
	size -= 3;
	length = MIN(MIN(length, size), sizeof(shown) - at);
	memcpy((uint8_t *)&shown + at, data, length);
	const uint8_t *its = data + length;
	size_t its_size = size - length;
	int same = !memcmp(&shown, &given, sizeof(shown)) && its_size == sizeof(text) &&
		   !memcmp(its, text, sizeof(text));
	check((warrant_check(&key, &shown, WARRANT_JOB, its, its_size) == 0) == same);
	/* With the right text, only the warrant itself passes. */
	check((warrant_check(&key, &shown, WARRANT_JOB, text, sizeof(text)) == 0) ==
	      !memcmp(&shown, &given, sizeof(shown)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	request_look(data, size);
	reply_look(data, size);
	warrant_look(data, size);
	return 0;
}
