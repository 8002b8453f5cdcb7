/* Looks into objects that are loaded, without the loader's own functions: those are what the front
 * wraps. Any thread; takes no lock but the loader's (dl_iterate_phdr).
 *
 * The first two are called while other libraries are not set up yet, sanitizers among them: in the
 * program's own namespace they call no function of any library. */
#pragma once

/* The function `name` as the C library itself defines it (libc.so.6, or libdl.so.2 before glibc
 * 2.34), NULL if it has none. */
void *loaded_libc_function(const char *name);

/* The handle that dlopen() would return for this object, without asking it: glibc's handles are its
 * link maps. NULL where the object is not in the program's own namespace (dlmopen). */
void *loaded_own_handle(void);

/* Path by which the object that holds `address` was loaded, "" for the program itself; the loader's
 * own string, valid as long as the object is loaded. NULL: no object holds it. */
const char *loaded_object_path(const void *address);
