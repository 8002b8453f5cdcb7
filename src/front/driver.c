#include "front/driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/macros.h"
#include "front/direct.h"
#include "front/dl.h"
#include "front/environment.h"
#include "front/library.h"
#include "proto/attach.h"
#include "proto/driver_places.h"

/* Buckets of the table address -> hook: more than four times the hooks of either library. */
#define HOOK_BUCKETS 2048u

static const char *const usual_directories[] = {DRIVER_DIRECTORIES};

enum driver_state {
	DRIVER_UNKNOWN = 0,
	DRIVER_LOADED,
	DRIVER_ABSENT,
};

/* Filled once by whichever thread is first; when two are, both write the same. */
static _Atomic int state;
static void *_Atomic handle;
static void *_Atomic hook_keys[HOOK_BUCKETS];
static void *_Atomic hook_values[HOOK_BUCKETS];

static bool same_file(const struct statx *a, const struct statx *b)
{
	return a->stx_ino == b->stx_ino && a->stx_dev_major == b->stx_dev_major &&
	       a->stx_dev_minor == b->stx_dev_minor;
}

static bool is_driver_file(const char *path, const struct statx *own)
{
	struct statx st;

	if (statx(AT_FDCWD, path, 0, STATX_INO | STATX_TYPE, &st) < 0)
		return false;
	return S_ISREG(st.stx_mode) && !same_file(&st, own);
}

/* First directory of a colon-separated list that holds the library. */
static int search_list(const char *list, const struct statx *own, char *buf, size_t size)
{
	while (list && *list) {
		size_t length = strcspn(list, ":");
		int n = snprintf(buf, size, "%.*s/%s", (int)length, list, front_library.soname);

		if (length && n < (int)size && is_driver_file(buf, own))
			return 0;
		list += length + (list[length] == ':');
	}
	return -ENOENT;
}

int driver_path(char *buf, size_t size)
{
	struct statx own = {0};
	const char *given = environment_get(front_library.driver_env);

	if (statx(AT_FDCWD, dl_own_path(), 0, STATX_INO, &own) < 0)
		own = (struct statx){0};
	if (given && given[0] == '/' && strlen(given) < size && is_driver_file(given, &own)) {
		memcpy(buf, given, strlen(given) + 1);
		return 0;
	}
	if (search_list(environment_get("LD_LIBRARY_PATH"), &own, buf, size) == 0)
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(usual_directories); i++)
		if (search_list(usual_directories[i], &own, buf, size) == 0)
			return 0;
	return -ENOENT;
}

bool driver_is_hidden(void)
{
	static const char kept[] = ATTACH_SLICE_DIR "/";
	const char *given = environment_get(front_library.driver_env);

	return given && strncmp(given, kept, sizeof(kept) - 1) == 0;
}

static uint32_t hook_bucket(const void *address)
{
	/* Functions are aligned to 16 bytes, mostly. */
	uint64_t key = (uintptr_t)address >> 4;

	return (uint32_t)(key * 0x9e3779b97f4a7c15ull >> 40) % HOOK_BUCKETS;
}

static void hook_remember(void *address, void *hook)
{
	uint32_t at = hook_bucket(address);

	for (uint32_t step = 0; step < HOOK_BUCKETS; step++, at = (at + 1) % HOOK_BUCKETS) {
		void *other = atomic_load(&hook_keys[at]);

		/* The first name wins where a driver has two names at one address. */
		if (other == address)
			return;
		if (other)
			continue;
		atomic_store(&hook_values[at], hook);
		atomic_store(&hook_keys[at], address);
		return;
	}
}

void *driver_hook_for(void *address)
{
	uint32_t at = hook_bucket(address);
	void *key;

	for (; (key = atomic_load(&hook_keys[at])); at = (at + 1) % HOOK_BUCKETS)
		if (key == address)
			return atomic_load(&hook_values[at]);
	return address;
}

static void fill_slots(void *library)
{
	const char *name = front_names;

	for (uint32_t i = 0; i < front_count; i++, name += strlen(name) + 1) {
		void *real = library ? dl_true_dlsym(library, name) : NULL;
		void *hook = front_hook_address(i);

		if (real && hook)
			hook_remember(real, hook);
		if (!real)
			real = (void *)(library ? front_library.missing : front_library.no_driver);
		atomic_store(&front_slots[i], real);
	}
}

static void load(void)
{
	char path[4096];
	void *library = NULL;

	dl_init();
	if (driver_path(path, sizeof(path)) == 0)
		library = dl_true_dlopen(path, RTLD_NOW | RTLD_LOCAL);
	fill_slots(library);
	atomic_store(&handle, library);
	atomic_store(&state, library ? DRIVER_LOADED : DRIVER_ABSENT);
	direct_bind();
}

void *driver_handle(void)
{
	if (atomic_load_explicit(&state, memory_order_acquire) == DRIVER_UNKNOWN)
		load();
	return atomic_load(&handle);
}

void *driver_resolve(uint32_t index)
{
	driver_handle();
	return atomic_load(&front_slots[index]);
}

/* Without the C library: a sanitizer that is not set up yet looks its functions up. */
static bool has_prefix(const char *name)
{
	const char *prefix = front_library.prefix;

	while (*prefix && *prefix == *name) {
		prefix++;
		name++;
	}
	return !*prefix;
}

int driver_function_index(const char *name)
{
	/* Names vary in length, so positions are found once: 4 bytes each. */
	static _Atomic uint32_t offsets[1024];
	uint32_t low = 0, high = front_count;

	if (!has_prefix(name))
		return -1;
	if (!atomic_load_explicit(&offsets[front_count - 1], memory_order_acquire)) {
		const char *at = front_names;

		for (uint32_t i = 0; i < front_count; i++, at += strlen(at) + 1)
			atomic_store_explicit(&offsets[i], (uint32_t)(at - front_names),
					      memory_order_release);
	}
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		int order = strcmp(name, front_names + atomic_load(&offsets[middle]));

		if (order == 0)
			return (int)middle;
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return -1;
}
