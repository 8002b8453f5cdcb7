/* The slice as the mount namespace carries it: for programs that were started without their
 * environment, or whose environment must not be believed. proto/attach.h has the file's form. */
#pragma once

#include <stdbool.h>

/* Whether there is a file that may be believed: root's; and for a process without rights of its own
 * (process_is_privileged()), its own user's, who made the namespace. */
bool slice_file_exists(void);
/* The value of a variable of the file, NULL: not in it, or no file. Valid for ever. */
const char *slice_file_get(const char *name);
