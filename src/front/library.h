/* The differences between the two libraries, and the tables generated for each (generate.py). All
 * of it is constant but the slots. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/attach.h"

/* One per library, in cuda/library.c and nvml/library.c. */
struct front_library {
	const char *soname;           /* "libcuda.so.1" */
	const char *stem;             /* "libcuda.so": what every name of it begins with */
	const char *prefix;           /* "cu": what every symbol begins with */
	const char *absent_name;      /* the name for dlopen where there is no driver */
	const char *hidden_name;      /* likewise where the slice's directory is hidden */
	const char *driver_env;       /* environment variable with the real one's absolute path */
	enum attach_kind attach_kind; /* how its processes attach */
	/* The target of a slot when the driver lacks the function, and when there is no driver.
	 * They are called with any arguments, and return a genuine code of the library. */
	void (*missing)(void);
	void (*no_driver)(void);
};

extern const struct front_library front_library;

struct front_entry {
	int32_t entry; /* distance of the exported entry from front_entries */
	int32_t hook;  /* likewise of the hook; 0: none */
};

/* In order of the names' alphabet. */
extern const uint32_t front_count;
extern const struct front_entry front_entries[];
extern const char front_names[];
extern void *_Atomic front_slots[];
/* Whole pages with nothing but the entries, and where in them a jump or call goes through a slot:
 * the distance of each such place from its own number. */
extern const uint8_t front_code[], front_code_end[];
extern const int32_t front_sites[];
extern const uint32_t front_site_count;

static inline void *front_entry_address(uint32_t index)
{
	return (char *)front_entries + front_entries[index].entry;
}

/* NULL where the function is not hooked. */
static inline void *front_hook_address(uint32_t index)
{
	int32_t distance = front_entries[index].hook;

	return distance ? (char *)front_entries + distance : NULL;
}
