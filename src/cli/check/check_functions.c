#include "cli/check/check_functions.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "slice/driver_find.h"
#include "slice/exports.h"
#include "slice/places.h"

/* The names that a library exports and `known` has not become keys of `into`. */
struct names {
	json_t *into;
	const json_t *known;
	const char *prefix;
};

static void name_add(void *arg, const char *name)
{
	const struct names *names = arg;

	if (strncmp(name, names->prefix, strlen(names->prefix)) == 0 &&
	    !json_object_get(names->known, name))
		json_object_set_new(names->into, name, json_true());
}

static void names_read(struct names *names, const char *path)
{
	size_t size;
	void *data = exports_map(path, &size);

	if (!data)
		return;
	exports_each(data, size, name_add, names);
	munmap(data, size);
}

static void unknown_add(json_t *unknown, const char *prefix, const char *driver, const char *front)
{
	json_t *known = json_object();
	struct names names = {.into = known, .prefix = prefix};

	names_read(&names, front);
	names = (struct names){.into = unknown, .known = known, .prefix = prefix};
	/* Where carve's own library cannot be read, nothing would be known. */
	if (json_object_size(known))
		names_read(&names, driver);
	json_decref(known);
}

static int order(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

json_t *check_functions(const struct driver_libs *driver, const struct places *places)
{
	json_t *unknown = json_object(), *list = json_array(), *value;
	size_t count = 0;
	const char *name;

	unknown_add(unknown, "cu", driver->cuda, places->front_cuda);
	unknown_add(unknown, "nvml", driver->nvml, places->front_nvml);
	const char **names = calloc(json_object_size(unknown) + 1, sizeof(*names));
	if (names) {
		json_object_foreach(unknown, name, value) names[count++] = name;
		qsort(names, count, sizeof(*names), order);
	}
	for (size_t i = 0; i < count; i++)
		json_array_append_new(list, json_string(names[i]));
	free(names);
	json_decref(unknown);
	return list;
}
