/* The container that fat binaries are kept in: a wrapper that points to a header, behind which are
 * entries, each with a header of its own and then its data. As compilers write it and cuobjdump
 * shows it; no public header has it. */
#pragma once

#include <stdint.h>

#define FATBIN_WRAPPER_MAGIC 0x466243b1u
#define FATBIN_MAGIC 0xba55ed50u

enum fatbin_kind {
	FATBIN_PTX = 1,
	FATBIN_ELF = 2,
};

struct fatbin_wrapper {
	uint32_t magic, version;
	const void *data;
	const void *unused;
};

struct fatbin_header {
	uint32_t magic;
	uint16_t version, header_size;
	uint64_t size; /* the size of the entries that follow */
};

struct fatbin_entry {
	uint16_t kind, version; /* enum fatbin_kind */
	uint32_t header_size;
	uint64_t size; /* the size of the data that follows this entry's header */
	uint32_t compressed_size, options_offset;
	uint16_t minor, major;
	uint32_t arch;
	uint32_t name_offset, name_size;
	uint64_t flags;
};

/* An entry whose data is compressed. */
struct fatbin_compressed {
	struct fatbin_entry entry;
	uint64_t unused;
	uint64_t plain_size; /* the size of the data when it is not */
};

/* flags: the data is compressed, by any of the methods. Compilers up to CUDA 12 write a block of
 * LZ4. Those from CUDA 13 on write a frame of Zstandard (unless told -compress-mode=speed). */
#define FATBIN_COMPRESSED 0xf000u
#define FATBIN_LZ4 0x2000u
#define FATBIN_ZSTD 0x8000u
