#include "slice/ld_cache.h"

#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

static const char magic[] = "glibc-ld.so.cache1.1";

struct header {
	char magic[sizeof(magic) - 1];
	uint32_t count;
	uint32_t strings_size;
	uint32_t unused[5];
};

struct entry {
	int32_t flags;
	uint32_t key, value; /* strings, by their distance from the header */
	uint32_t os_version;
	uint64_t hwcap;
};

_Static_assert(sizeof(struct header) == 48 && sizeof(struct entry) == 24, "glibc's format");

/* The string at `offset`, NULL: it is not ended within the cache. */
static const char *string_at(const char *cache, size_t size, uint32_t offset)
{
	if (offset >= size || !memchr(cache + offset, '\0', size - offset))
		return NULL;
	return cache + offset;
}

void ld_cache_each(const void *data, size_t size, const char *name,
		   void (*cb)(void *arg, const char *path), void *arg)
{
	/* An older format may come first, for older programs. */
	const char *cache = size ? memmem(data, size, magic, sizeof(magic) - 1) : NULL;
	struct header header;
	struct entry entry;

	if (!cache)
		return;
	size -= (size_t)(cache - (const char *)data);
	if (size < sizeof(header))
		return;
	memcpy(&header, cache, sizeof(header));
	for (size_t i = 0, at = sizeof(header); i < header.count && size - at >= sizeof(entry);
	     i++, at += sizeof(entry)) {
		memcpy(&entry, cache + at, sizeof(entry));
		const char *key = string_at(cache, size, entry.key);
		const char *path = string_at(cache, size, entry.value);

		if (key && path && *path == '/' && strcmp(key, name) == 0)
			cb(arg, path);
	}
}

void *ld_cache_map(size_t *ret_size)
{
	cleanup_close int fd = open(LD_CACHE_PATH, O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || st.st_size <= 0)
		return NULL;
	void *at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (at == MAP_FAILED)
		return NULL;
	*ret_size = (size_t)st.st_size;
	return at;
}
