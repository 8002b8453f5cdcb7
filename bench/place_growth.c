/* The cost of a placement decision: one line a case on stdout, "NAME GPUS NS". Every GPU has 8
 * slices, and a size left that the requests just fit in or not, so that none is found at the first
 * look.
 *
 *   place_growth GPUS... */
#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/macros.h"
#include "core/place.h"

#define LOOK_NS 50000000u

static uint64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void measure(const char *name, uint32_t count, struct place_request request, int expected)
{
	struct place_gpu *gpus = calloc(count, sizeof(*gpus));
	struct place_result result;
	uint64_t decisions = 0, began, passed;

	if (!gpus)
		exit(1);
	for (uint32_t i = 0; i < count; i++)
		gpus[i] = (struct place_gpu){.total = GIB(80),
					     .promised = 8 * GIB(9) - MIB(i % 64),
					     .sessions = 8,
					     .offered = true};
	began = clock_ns();
	do {
		if (place_decide(PLACE_PACK, gpus, count, &request, &result) != expected)
			exit(2);
		decisions++;
		passed = clock_ns() - began;
	} while (passed < LOOK_NS);
	printf("%s %" PRIu32 " %.1f\n", name, count, (double)passed / (double)decisions);
	free(gpus);
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		uint32_t count = (uint32_t)strtoul(argv[i], NULL, 10);
		struct place_request fits = {.kind = PLACE_BYTES, .bytes = GIB(5), .count = 1};
		struct place_request many = {.kind = PLACE_BYTES, .bytes = GIB(5), .count = 8};
		struct place_request none = {.kind = PLACE_BYTES, .bytes = GIB(20), .count = 1};

		if (count < 8)
			return 3;
		measure("place-1", count, fits, 0);
		measure("place-8", count, many, 0);
		measure("place-refused", count, none, -ENOSPC);
	}
	return 0;
}
