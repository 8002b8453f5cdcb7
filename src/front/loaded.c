#include "front/loaded.h"

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct function_search {
	const char *name;
	void *found;
};

/* The tables of one object's dynamic section. */
struct dynamic {
	const ElfW(Sym) * symbols;
	const char *strings;
	const uint32_t *gnu_hash;
};

/* The loader rewrites these entries to addresses in most objects, not in all (the vDSO). */
static const void *dynamic_address(const struct dl_phdr_info *info, const ElfW(Dyn) * entry)
{
	ElfW(Addr) at = entry->d_un.d_ptr;

	return (const void *)(at < info->dlpi_addr ? at + info->dlpi_addr : at);
}

static bool dynamic_read(const struct dl_phdr_info *info, struct dynamic *ret)
{
	const ElfW(Dyn) *entry = NULL;

	*ret = (struct dynamic){0};
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			entry = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	for (; entry && entry->d_tag != DT_NULL; entry++) {
		if (entry->d_tag == DT_SYMTAB)
			ret->symbols = dynamic_address(info, entry);
		else if (entry->d_tag == DT_STRTAB)
			ret->strings = dynamic_address(info, entry);
		else if (entry->d_tag == DT_GNU_HASH)
			ret->gnu_hash = dynamic_address(info, entry);
	}
	return ret->symbols && ret->strings && ret->gnu_hash;
}

static uint32_t gnu_hash(const char *name)
{
	uint32_t hash = 5381;

	for (const unsigned char *c = (const unsigned char *)name; *c; c++)
		hash = hash * 33 + *c;
	return hash;
}

/* Layout of DT_GNU_HASH: buckets, first hashed symbol, words of the Bloom filter, its shift; then
 * the filter, the buckets, and one hash a symbol whose lowest bit ends a chain. */
static const ElfW(Sym) * dynamic_find(const struct dynamic *d, const char *name)
{
	uint32_t bucket_count = d->gnu_hash[0], first = d->gnu_hash[1], words = d->gnu_hash[2];
	const uint32_t *buckets = d->gnu_hash + 4 + words * (sizeof(ElfW(Addr)) / 4);
	const uint32_t *chain = buckets + bucket_count;
	uint32_t hash = gnu_hash(name);

	if (!bucket_count)
		return NULL;
	uint32_t index = buckets[hash % bucket_count];
	if (index < first)
		return NULL;
	for (;; index++) {
		uint32_t other = chain[index - first];

		if ((other | 1) == (hash | 1)) {
			const ElfW(Sym) *symbol = &d->symbols[index];

			if (symbol->st_shndx != SHN_UNDEF &&
			    strcmp(d->strings + symbol->st_name, name) == 0)
				return symbol;
		}
		if (other & 1)
			return NULL;
	}
}

static bool is_c_library(const char *path)
{
	const char *slash = path ? strrchr(path, '/') : NULL;
	const char *base = slash ? slash + 1 : path;

	return base && (strcmp(base, "libc.so.6") == 0 || strcmp(base, "libdl.so.2") == 0);
}

static int find_function(struct dl_phdr_info *info, size_t size, void *data)
{
	struct function_search *search = data;
	struct dynamic dynamic;

	if (!is_c_library(info->dlpi_name) || !dynamic_read(info, &dynamic))
		return 0;
	const ElfW(Sym) *symbol = dynamic_find(&dynamic, search->name);
	if (!symbol || ELF64_ST_TYPE(symbol->st_info) != STT_FUNC)
		return 0;
	search->found = (void *)(info->dlpi_addr + symbol->st_value);
	return 1;
}

void *loaded_libc_function(const char *name)
{
	struct function_search search = {.name = name};

	dl_iterate_phdr(find_function, &search);
	return search.found;
}

struct object_search {
	uintptr_t address;
	const char *path;
};

static int find_object(struct dl_phdr_info *info, size_t size, void *data)
{
	struct object_search *search = data;

	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
		uintptr_t begin = info->dlpi_addr + segment->p_vaddr;

		if (segment->p_type != PT_LOAD || search->address < begin ||
		    search->address >= begin + segment->p_memsz)
			continue;
		search->path = info->dlpi_name;
		return 1;
	}
	return 0;
}

const char *loaded_object_path(const void *address)
{
	struct object_search search = {.address = (uintptr_t)address};

	dl_iterate_phdr(find_object, &search);
	return search.path;
}
