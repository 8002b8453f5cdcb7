/* SPEC of a simulated host: any text is taken or refused with one line. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "host/spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct spec spec = {0};
	struct error err = {0};
	char *text = strndup((const char *)data, size);

	if (spec_parse(text, &spec, &err) < 0) {
		if (err.code != EXIT_CODE_USAGE || !err.message[0] || !err.hint[0])
			abort();
	} else if (!spec.gpu_count || spec.gpu_count > WIRE_GPUS_MAX || err.code) {
		abort();
	}
	free(text);
	return 0;
}
