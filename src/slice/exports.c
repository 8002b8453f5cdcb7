#include "slice/exports.h"

#include <elf.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

struct image {
	const char *data;
	size_t size;
};

/* `count` records of `each` bytes at `offset`, copied from there one by one, as they need not be
 * aligned. */
static bool is_within(const struct image *image, uint64_t offset, uint64_t count, uint64_t each)
{
	return offset <= image->size && count <= (image->size - offset) / each;
}

static bool header_read(const struct image *image, Elf64_Ehdr *ret)
{
	if (image->size < sizeof(*ret))
		return false;
	memcpy(ret, image->data, sizeof(*ret));
	return memcmp(ret->e_ident, ELFMAG, SELFMAG) == 0 && ret->e_ident[EI_CLASS] == ELFCLASS64 &&
	       ret->e_ident[EI_DATA] == ELFDATA2LSB && ret->e_shentsize == sizeof(Elf64_Shdr) &&
	       is_within(image, ret->e_shoff, ret->e_shnum, sizeof(Elf64_Shdr));
}

static Elf64_Shdr section_read(const struct image *image, const Elf64_Ehdr *header, uint32_t index)
{
	Elf64_Shdr section;

	memcpy(&section, image->data + header->e_shoff + index * sizeof(section), sizeof(section));
	return section;
}

/* The string there, which ends within the strings; NULL: it does not. */
static const char *name_at(const struct image *image, const Elf64_Shdr *strings, uint32_t at)
{
	if (at >= strings->sh_size)
		return NULL;
	const char *name = image->data + strings->sh_offset + at;

	return memchr(name, '\0', strings->sh_size - at) ? name : NULL;
}

static bool is_exported(const Elf64_Sym *symbol)
{
	unsigned int type = ELF64_ST_TYPE(symbol->st_info), bind = ELF64_ST_BIND(symbol->st_info);

	return symbol->st_shndx != SHN_UNDEF && (bind == STB_GLOBAL || bind == STB_WEAK) &&
	       (type == STT_FUNC || type == STT_GNU_IFUNC);
}

static void symbols_each(const struct image *image, const Elf64_Shdr *symbols,
			 const Elf64_Shdr *strings, void (*cb)(void *arg, const char *name),
			 void *arg)
{
	uint64_t count = symbols->sh_size / sizeof(Elf64_Sym);
	Elf64_Sym symbol;

	if (!is_within(image, symbols->sh_offset, count, sizeof(symbol)) ||
	    !is_within(image, strings->sh_offset, strings->sh_size, 1))
		return;
	for (uint64_t i = 0; i < count; i++) {
		memcpy(&symbol, image->data + symbols->sh_offset + i * sizeof(symbol),
		       sizeof(symbol));
		const char *name =
			is_exported(&symbol) ? name_at(image, strings, symbol.st_name) : NULL;
		if (name)
			cb(arg, name);
	}
}

void exports_each(const void *data, size_t size, void (*cb)(void *arg, const char *name), void *arg)
{
	const struct image image = {data, size};
	Elf64_Ehdr header;

	if (!header_read(&image, &header))
		return;
	for (uint32_t i = 0; i < header.e_shnum; i++) {
		const Elf64_Shdr symbols = section_read(&image, &header, i);

		if (symbols.sh_type != SHT_DYNSYM || symbols.sh_link >= header.e_shnum)
			continue;
		const Elf64_Shdr strings = section_read(&image, &header, symbols.sh_link);
		symbols_each(&image, &symbols, &strings, cb, arg);
	}
}

void *exports_map(const char *path, size_t *ret_size)
{
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size <= 0)
		return NULL;
	void *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);

	if (data == MAP_FAILED)
		return NULL;
	*ret_size = (size_t)st.st_size;
	return data;
}
