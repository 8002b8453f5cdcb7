/* The text of a claim on a GPU, as a file in the directory of claims may have it: it is refused, or
 * says again what it said. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/gpu/claims.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char text[48] = "", again[48];
	struct process_id id, same;

	memcpy(text, data, MIN(size, sizeof(text) - 1));
	if (!claim_parse(text, &id))
		return 0;
	snprintf(again, sizeof(again), "%d %" PRIu64 "\n", (int)id.pid, id.birth);
	if (id.pid <= 0 || !claim_parse(again, &same) || same.pid != id.pid ||
	    same.birth != id.birth)
		abort();
	return 0;
}
