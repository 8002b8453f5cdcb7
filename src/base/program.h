/* Programs that are to be executed. libc only. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Whether a directory of the PATH has a program of that name, which has no slash. */
bool program_is_there(const char *name);

/* Says why execvp(name) failed with errno value `error`, for people: "is a directory". The text
 * goes into `buf`. Returns the exit code that says so: EXIT_CODE_NOT_FOUND where no file of that
 * name is there, else EXIT_CODE_NOT_EXECUTABLE. Looks at the file, which may have changed since. */
#define PROGRAM_WHY_SIZE 512
int program_why(const char *name, int error, char buf[static PROGRAM_WHY_SIZE]);
