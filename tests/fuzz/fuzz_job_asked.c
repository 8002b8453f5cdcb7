/* The request of a job as it is shown: any text is copied within its bounds, and one that
 * json_dumps() wrote is JSON again, without what is private. */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/queue/job_asked.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void written(json_t *request)
{
	char *text = json_dumps(request, JSON_COMPACT),
	     *asked = text ? job_asked_text(text, 7) : NULL;
	json_t *shown = asked ? json_loads(asked, 0, NULL) : NULL;

	if (text && (!json_is_object(shown) || json_object_get(shown, "env")))
		abort();
	/* No member is lost but those that are private. */
	if (text && json_object_size(shown) + 3 < json_object_size(request))
		abort();
	json_decref(shown);
	free(asked);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = strndup((const char *)data, size),
	     *asked = text ? job_asked_text(text, 3) : NULL;
	json_t *request = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);

	if (asked && strlen(asked) > strlen(text) + 3)
		abort();
	if (job_asked_values((const char *)data, size) > size + 1)
		abort();
	if (json_is_object(request))
		written(request);
	json_decref(request);
	free(asked);
	free(text);
	return 0;
}
