#include "front/loaded.h"

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/auxv.h>

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

/* The C library's own string functions may be a sanitizer's by name, and that calls us before it is
 * set up itself. */
static bool same_text(const char *a, const char *b)
{
	while (*a && *a == *b) {
		a++;
		b++;
	}
	return *a == *b;
}

/* The loader rewrites these entries to addresses in most objects, not in all (the vDSO). */
static const void *dynamic_address(ElfW(Addr) base, const ElfW(Dyn) * entry)
{
	ElfW(Addr) at = entry->d_un.d_ptr;

	return (const void *)(at < base ? at + base : at);
}

static bool dynamic_read(ElfW(Addr) base, const ElfW(Dyn) * entry, struct dynamic *ret)
{
	*ret = (struct dynamic){0};
	for (; entry && entry->d_tag != DT_NULL; entry++) {
		if (entry->d_tag == DT_SYMTAB)
			ret->symbols = dynamic_address(base, entry);
		else if (entry->d_tag == DT_STRTAB)
			ret->strings = dynamic_address(base, entry);
		else if (entry->d_tag == DT_GNU_HASH)
			ret->gnu_hash = dynamic_address(base, entry);
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
			    same_text(d->strings + symbol->st_name, name))
				return symbol;
		}
		if (other & 1)
			return NULL;
	}
}

static bool is_c_library(const char *path)
{
	const char *base = path;

	for (const char *c = path; c && *c; c++)
		if (*c == '/')
			base = c + 1;
	return base && (same_text(base, "libc.so.6") || same_text(base, "libdl.so.2"));
}

static bool function_find(const char *path, ElfW(Addr) base, const ElfW(Dyn) * entry,
			  struct function_search *search)
{
	struct dynamic dynamic;

	if (!is_c_library(path) || !dynamic_read(base, entry, &dynamic))
		return false;
	const ElfW(Sym) *symbol = dynamic_find(&dynamic, search->name);
	if (!symbol || ELF64_ST_TYPE(symbol->st_info) != STT_FUNC)
		return false;
	search->found = (void *)(base + symbol->st_value);
	return true;
}

static int find_function(struct dl_phdr_info *info, size_t size, void *data)
{
	const ElfW(Dyn) *entry = NULL;

	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			entry = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	return function_find(info->dlpi_name, info->dlpi_addr, entry, data);
}

/* The objects of the program's own namespace, as the loader tells debuggers of them: through the
 * program's DT_DEBUG. The symbol of the same content is ld.so's, which we do not link. */
static const struct link_map *first_object(void)
{
	const ElfW(Phdr) *header = (const void *)getauxval(AT_PHDR);
	size_t count = header ? getauxval(AT_PHNUM) : 0;
	const ElfW(Dyn) *entry = NULL;
	ElfW(Addr) base = 0;

	for (size_t i = 0; i < count; i++) {
		if (header[i].p_type == PT_PHDR)
			base = (ElfW(Addr))header - header[i].p_vaddr;
		else if (header[i].p_type == PT_DYNAMIC)
			entry = (const void *)(base + header[i].p_vaddr);
	}
	while (entry && entry->d_tag != DT_NULL && entry->d_tag != DT_DEBUG)
		entry++;
	const struct r_debug *debug =
		entry && entry->d_tag == DT_DEBUG ? (const void *)entry->d_un.d_ptr : NULL;
	return debug ? debug->r_map : NULL;
}

void *loaded_own_handle(void)
{
	const struct link_map *map = first_object();

	/* _DYNAMIC is each object's own dynamic section. */
	while (map && map->l_ld != _DYNAMIC)
		map = map->l_next;
	return (void *)map;
}

void *loaded_libc_function(const char *name)
{
	struct function_search search = {.name = name};

	if (!loaded_own_handle()) {
		dl_iterate_phdr(find_function, &search);
		return search.found;
	}
	/* The C library is loaded at the start and stays: the way to it does not change. */
	for (const struct link_map *map = first_object(); map; map = map->l_next)
		if (function_find(map->l_name, map->l_addr, map->l_ld, &search))
			break;
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
