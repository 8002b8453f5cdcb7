/* Bodies of the HTTP API: any text is taken or refused with one line. */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/units.h"
#include "daemon/request/request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_taken(const struct place_request *place)
{
	if (place->count == 0 || place->count > PLACE_GPUS_MAX || place->share > SHARE_ONE ||
	    place->compute > SHARE_ONE)
		abort();
	if (place->kind == PLACE_BYTES &&
	    (place->bytes < SLICE_BYTES_MIN || place->bytes > SLICE_BYTES_MAX))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	json_t *root = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
	struct slice_request request;
	struct place_request place;
	struct error err = {0};

	if (!root)
		return 0;
	if (request_parse(root, &request, &err) == 0) {
		char text[REQUEST_TEXT_SIZE];

		check_taken(&request.place);
		if (!request_text(&request.place, request.profile, text)[0])
			abort();
	} else if (err.code != EXIT_CODE_USAGE || !err.message[0]) {
		abort();
	}
	if (request_parse_size(root, &place, &err) == 0)
		check_taken(&place);
	json_decref(root);
	return 0;
}
