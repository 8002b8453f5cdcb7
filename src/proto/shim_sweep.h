/* A sweep's jobs: which values each has. The daemon shows them, and the shim sets them. */
#pragma once

#include <jansson.h>
#include <stdint.h>

/* The values that the job of this index has, one of each parameter's list, the first parameter's
 * changing fastest. -1 (it is of no array): the first ones. A new object, the caller's. */
static inline json_t *shim_sweep_choose(const json_t *params, int64_t index)
{
	json_t *chosen = json_object(), *values;
	size_t number = index > 0 ? (size_t)index : 0;
	const char *key;

	json_object_foreach((json_t *)params, key, values)
	{
		size_t count = json_array_size(values);

		if (!count)
			continue;
		json_object_set(chosen, key, json_array_get(values, number % count));
		number /= count;
	}
	return chosen;
}
