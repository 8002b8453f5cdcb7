/* `simhost run`: a simulated host for as long as one command runs. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct spec;
struct spec_driver;

struct run_options {
	const char *program; /* as the user called it: errors begin with it */
	bool shared;         /* other users' programs may join it */
	const char *join; /* directory of the host to run on; NULL: make one of spec and driver */
	const struct spec *spec;
	const struct spec_driver *driver;
	char *const *env; /* NAME=VALUE; "{host}" in VALUE is the host's directory */
	size_t env_count;
	char *const *command; /* NULL-terminated */
};

/* Returns the exit code to leave with: the command's, or 128 + n where signal n killed it. It is
 * 126 or 127 where the command could not be run, 125 where the host could not be made. Says on
 * stderr what failed. */
int run(const struct run_options *options);
