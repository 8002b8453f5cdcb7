/* C halves of the loader's wrappers (x86_64/dl.S), and the loader's own functions for the front. */
#pragma once

/* The next definitions after the front's, found at the first use of any; dl_init() makes sure of
 * it. They are what the wrappers jump to. */
extern void *(*dl_true_dlopen)(const char *name, int flags);
extern void *(*dl_true_dlmopen)(long space, const char *name, int flags);
extern void *(*dl_true_dlsym)(void *handle, const char *name);
extern void *(*dl_true_dlvsym)(void *handle, const char *name, const char *version);
void dl_init(void);

/* Path by which the front was loaded. */
const char *dl_own_path(void);

/* The name to open instead of `name` (may be NULL): the front's own path for any spelling of the
 * driver's library, where a driver exists. Else it is `name` itself. It is so, too, where `caller`,
 * an address in the calling code, is the driver's own: it wants another part of itself. */
const char *dl_open_name(const char *name, const void *caller);

/* Answers a look-up where the front has a say, as the real driver would. Returns the address, or
 * NULL when the caller shall ask the loader, for *handle, which may have been replaced. The
 * `version` is NULL for dlsym. */
void *dl_symbol(void **handle, const char *name, const char *version);
