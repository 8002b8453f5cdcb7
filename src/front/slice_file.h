/* The slice as the mount namespace carries it: for programs that were started without their
 * environment. proto/attach.h has the file's form. */
#pragma once

/* The value of a variable of the file, NULL: not in it, or no file. Valid for ever. */
const char *slice_file_get(const char *name);
