/* `carve kubernetes check`: whether a cluster has what carve needs. */
#pragma once

#include <stdbool.h>

struct error;

struct check_options {
	const char *driver;
	const char *api_url, *token, *ca; /* api_open(); url NULL outside a pod: kubectl asks */
	bool json;
};

/* Prints what it found. 0, or negative: with *err where nothing could be asked, without where
 * something is missing. */
int check_run(const struct check_options *options, struct error *err);
