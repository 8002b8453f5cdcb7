/* The table behind cuGetProcAddress; generated from procaddr.tsv. */
#pragma once

#include <stddef.h>

struct procaddr {
	const char *name;
	int version; /* the CUDA version since which the name means this function */
	void *function;
	int thread_version; /* since which it has a variant on the thread's own stream; 0: none */
	void *thread_function;
};

extern const struct procaddr procaddr_table[];
extern const size_t procaddr_count;
