/* One flat table of an ABI's numbers, built twice: from our headers and from the vendor's. */
#pragma once

#include <stddef.h>

struct abi_entry {
	const char *name;
	long long value;
};

extern const struct abi_entry abi_ours[], abi_vendor[];
extern const size_t abi_ours_count, abi_vendor_count;

#define ABI_VALUE(name) {#name, (long long)(int)(name)},
#define ABI_SIZE(type) {"sizeof " #type, (long long)sizeof(type)},
#define ABI_OFFSET(type, member) {"offset " #type "." #member, (long long)offsetof(type, member)},
