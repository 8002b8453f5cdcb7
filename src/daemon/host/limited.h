/* The things of which the daemon has less than a service would, as whoever started it had: limits
 * of resources that could not be lifted, a low priority. Any thread. */
#pragma once

#include <jansson.h>

/* A list of texts for people, owned by the caller; looked at anew with each call. NULL: no memory.
 */
json_t *limited_list(void);
/* Logs each of them. */
void limited_log(void);
