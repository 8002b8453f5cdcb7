/* Small helpers that every folder may use. */
#pragma once

#include <stddef.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
/* <sys/param.h>, which other headers bring along, has the same two. */
#ifndef MIN
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#endif
/* The object whose `member` this is. */
#define CONTAINER_OF(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))
#define ALIGN_UP(value, unit) (((value) + (unit)-1) / (unit) * (unit))
#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)
#define GIB(n) ((uint64_t)(n) << 30)

/* Moves a pointer out of an owned variable, leaving NULL: `return steal_ptr(&p);` */
#define steal_ptr(pp)                       \
	({                                  \
		__typeof__(pp) pp_ = (pp);  \
		__typeof__(*pp_) v_ = *pp_; \
		*pp_ = NULL;                \
		v_;                         \
	})
