#include "front/dl.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "front/driver.h"
#include "front/library.h"
#include "front/loaded.h"
#include "front/lock.h"

/* Where the libc's loader cannot be found (it is no glibc), nothing can be opened or looked up. */
static void *no_dlopen(const char *name, int flags)
{
	return NULL;
}

static void *no_dlmopen(long space, const char *name, int flags)
{
	return NULL;
}

static void *no_dlsym(void *handle, const char *name)
{
	return NULL;
}

static void *no_dlvsym(void *handle, const char *name, const char *version)
{
	return NULL;
}

void *(*dl_true_dlopen)(const char *name, int flags) = no_dlopen;
void *(*dl_true_dlmopen)(long space, const char *name, int flags) = no_dlmopen;
void *(*dl_true_dlsym)(void *handle, const char *name) = no_dlsym;
void *(*dl_true_dlvsym)(void *handle, const char *name, const char *version) = no_dlvsym;

static _Atomic bool ready;
static void *own_handle;

typedef void *dlsym_fn(void *handle, const char *name);

/* The flag by which the C library's own parts open a library: glibc's elf/dl-open.c before 2.34. */
#define LIBC_DLOPEN (RTLD_LAZY | (int)0x80000000)

/* Before glibc 2.34 it is in a library of its own, which a program that is linked to the driver
 * need not have. The front is not linked to it, as loading one more would cost every process. */
static dlsym_fn *find_dlsym(void)
{
	dlsym_fn *found = loaded_libc_function("dlsym");
	void *(*libc_dlopen)(const char *, int) =
		found ? NULL : loaded_libc_function("__libc_dlopen_mode");

	if (libc_dlopen && libc_dlopen("libdl.so.2", LIBC_DLOPEN))
		found = loaded_libc_function("dlsym");
	return found;
}

/* The definition after the front's, which may be another interposer's. */
static void *next_of(dlsym_fn *libc_dlsym, const char *name)
{
	void *next = libc_dlsym(RTLD_NEXT, name);

	return next ? next : loaded_libc_function(name);
}

void dl_init(void)
{
	if (atomic_load_explicit(&ready, memory_order_acquire))
		return;
	/* By name, dlsym would be the front's own; another interposer's comes before the libc's. */
	dlsym_fn *libc_dlsym = find_dlsym();

	if (!libc_dlsym)
		return;
	dl_true_dlopen = next_of(libc_dlsym, "dlopen");
	dl_true_dlmopen = next_of(libc_dlsym, "dlmopen");
	dl_true_dlvsym = next_of(libc_dlsym, "dlvsym");
	dl_true_dlsym = next_of(libc_dlsym, "dlsym");
	own_handle = loaded_own_handle();
	if (!own_handle)
		own_handle = dl_true_dlopen(dl_own_path(), RTLD_LAZY | RTLD_NOLOAD);
	const char *single = dl_true_dlsym(RTLD_NEXT, "__libc_single_threaded");
	if (single)
		lock_single_threaded = single;
	atomic_store_explicit(&ready, true, memory_order_release);
}

const char *dl_own_path(void)
{
	static const char *_Atomic path;

	if (!atomic_load(&path))
		atomic_store(&path, loaded_object_path(&front_library));
	return atomic_load(&path);
}

/* libX.so, libX.so.1, libX.so.550.54.15, in any directory or none. */
static bool is_driver_name(const char *name)
{
	const char *slash = strrchr(name, '/');
	const char *base = slash ? slash + 1 : name;
	size_t stem = strlen(front_library.stem);

	if (strncmp(base, front_library.stem, stem) != 0)
		return false;
	base += stem;
	return !*base || (*base == '.' && base[strspn(base, ".0123456789")] == '\0');
}

/* Under WSL the library of the driver's name is small, and opens the one of the driver store, which
 * is called alike. With the front in its place the two would call each other for ever. */
static bool is_of(const char *path, const void *caller)
{
	const char *object = loaded_object_path(caller);

	return object && !strcmp(object, path);
}

const char *dl_open_name(const char *name, const void *caller)
{
	char path[4096];

	dl_init();
	if (!name || !is_driver_name(name))
		return name;
	if (driver_path(path, sizeof(path)) == 0)
		return is_of(path, caller) ? name : dl_own_path();
	/* No driver here: fail as the loader would, instead of finding the front by its SONAME. */
	return driver_is_hidden() ? front_library.hidden_name : front_library.absent_name;
}

/* The real driver's answer about a name; NULL with *handle at the driver's where it has none. */
static void *driver_symbol(void **handle, const char *name, const char *version)
{
	void *driver = driver_handle();
	void *address;

	if (!driver)
		return NULL;
	address = version ? dl_true_dlvsym(driver, name, version) : dl_true_dlsym(driver, name);
	if (!address) {
		*handle = driver;
		return NULL;
	}
	return driver_hook_for(address);
}

void *dl_symbol(void **handle, const char *name, const char *version)
{
	dl_init();
	if (!name)
		return NULL;
	if (*handle && *handle == own_handle)
		return driver_symbol(handle, name, version);
	int index = driver_function_index(name);
	if (index < 0)
		return NULL;
	/* The front stands first in the search order, where the driver stood last: what comes after
	 * any caller is the driver. */
	if (*handle == RTLD_NEXT)
		return driver_symbol(handle, name, version);
	void *found =
		version ? dl_true_dlvsym(*handle, name, version) : dl_true_dlsym(*handle, name);
	if (found != front_entry_address((uint32_t)index))
		return NULL;
	return driver_symbol(handle, name, version);
}
