/* Requests at carve-metrics: any bytes, in any pieces, are a request, or are refused with a status.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "integrations/metrics/request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The first byte says how large the pieces are. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct request *request = malloc(sizeof(*request));
	size_t piece = size ? (size_t)data[0] + 1 : 1, taken = 0;
	enum request_step step = REQUEST_MORE;

	if (!request)
		abort();
	request_begin(request);
	for (size_t at = 1; at < size && step == REQUEST_MORE; at += taken) {
		size_t now = size - at < piece ? size - at : piece;

		step = request_take(request, (const char *)data + at, now, &taken);
		if (taken > now || (step == REQUEST_MORE && taken != now))
			abort();
	}
	if (step == REQUEST_WRONG && (request->status < 400 || request->status > 499))
		abort();
	if (step == REQUEST_READY &&
	    (request->bytes > REQUEST_BYTES_MAX || request->target_size >= REQUEST_TARGET_MAX))
		abort();
	if (step == REQUEST_READY && request->token_size != SIZE_MAX &&
	    request->token_size > REQUEST_TOKEN_MAX)
		abort();
	(void)request_is_for(request, "/metrics");
	free(request);
	return 0;
}
