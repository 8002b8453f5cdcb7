/* A large variable takes what its declaration says, in text as in machine code. All else that is
 * known is a guess: code, constants and small variables. No allocation, as this runs in a program's
 * own calls; nothing is believed of a file, which is read to its end and no further. */
#include "front/cuda/charge/image.h"

#include <ctype.h>
#include <elf.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fatbin.h"
#include "base/file.h"
#include "base/macros.h"
#include "front/books.h"

#define ELF_MACHINE_CUDA 190

/* Sums end at more than any GPU has. */
static uint64_t sum(uint64_t a, uint64_t b)
{
	return a > BOOKS_MOST || b > BOOKS_MOST - a ? BOOKS_MOST + 1 : a + b;
}

static uint64_t product(uint64_t a, uint64_t b)
{
	return b && a > BOOKS_MOST / b ? BOOKS_MOST + 1 : a * b;
}

static void variable_add(struct image_memory *m, uint64_t bytes, bool surely)
{
	uint64_t large = surely && bytes >= BLOCK_BYTES ? MIN(bytes, BOOKS_MOST + 1) : 0;

	m->surely = sum(m->surely, large);
	m->perhaps = sum(m->perhaps, (large ? ALIGN_UP(large, BLOCK_BYTES) : bytes) - large);
}

/* ---- PTX ---- */

struct scan {
	const char *at, *end;
};

struct token {
	const char *text; /* size 0: the end */
	size_t size;
};

static bool starts_with(const struct scan *s, const char *text)
{
	size_t size = strlen(text);

	return (size_t)(s->end - s->at) >= size && memcmp(s->at, text, size) == 0;
}

/* To the first of `text` behind here, or to the end. */
static void skip_to(struct scan *s, const char *text)
{
	const char *found = memmem(s->at, (size_t)(s->end - s->at), text, strlen(text));

	s->at = found ? found + strlen(text) : s->end;
}

static void skip_space(struct scan *s)
{
	while (s->at < s->end) {
		if (isspace((unsigned char)*s->at))
			s->at++;
		else if (starts_with(s, "//"))
			skip_to(s, "\n");
		else if (starts_with(s, "/*"))
			skip_to(s, "*/");
		else
			return;
	}
}

static bool is_word(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.';
}

static struct token next_token(struct scan *s)
{
	skip_space(s);
	struct token t = {.text = s->at};

	if (s->at == s->end)
		return t;
	if (*s->at == '"') {
		s->at++;
		skip_to(s, "\"");
	} else if (is_word(*s->at)) {
		while (s->at < s->end && is_word(*s->at))
			s->at++;
	} else {
		s->at++;
	}
	t.size = (size_t)(s->at - t.text);
	return t;
}

static bool is(struct token t, const char *text)
{
	return t.size == strlen(text) && memcmp(t.text, text, t.size) == 0;
}

static uint64_t number_of(struct token t)
{
	char text[24] = "";

	memcpy(text, t.text, MIN(t.size, sizeof(text) - 1));
	return strtoull(text, NULL, 0);
}

/* ".f32" -> 4, ".v4" -> a vector of 4; 0: no type. */
static uint64_t type_bytes(struct token t)
{
	static const char *const types[] = {".b8",    ".u8",   ".s8",  ".b16", ".u16", ".s16",
					    ".f16",   ".bf16", ".b32", ".u32", ".s32", ".f32",
					    ".f16x2", ".b64",  ".u64", ".s64", ".f64", ".b128"};
	static const uint8_t bytes[] = {1, 1, 1, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4, 8, 8, 8, 8, 16};

	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if (is(t, types[i]))
			return bytes[i];
	return 0;
}

/* One variable's elements, from behind its name to the ',' or ';' that ends it. */
static uint64_t elements(struct scan *s, struct token *ret_last)
{
	uint64_t count = 1, commas = 0;
	bool unsized = false;
	int depth = 0;
	struct token t = next_token(s), before = {0};

	for (; t.size && (depth || (!is(t, ",") && !is(t, ";"))); before = t, t = next_token(s)) {
		depth += is(t, "{");
		depth -= is(t, "}") && depth;
		commas += depth && is(t, ",");
		if (is(before, "[") && is(t, "]"))
			unsized = true;
		else if (is(before, "[") && !depth)
			count = product(count, number_of(t));
	}
	*ret_last = t;
	return unsized ? product(count, commas + 1) : count;
}

/* Behind ".global" or ".const". */
static void variables_scan(struct scan *s, bool is_there, struct image_memory *m)
{
	struct token t = next_token(s);
	uint64_t type = 0, vector = 1;
	bool managed = false;

	for (; t.size && !is(t, ";"); t = next_token(s)) {
		if (is(t, ".v2") || is(t, ".v4"))
			vector = (uint64_t)(t.text[2] - '0');
		else if (type_bytes(t))
			type = type_bytes(t);
		else if (is(t, ".managed"))
			managed = true;
		else if (type)
			break;
	}
	/* The first one's name; without a type it is something else. */
	while (t.size && !is(t, ";")) {
		uint64_t bytes = product(type * vector, elements(s, &t));

		if (is_there)
			variable_add(m, bytes, !managed);
		if (is(t, ","))
			(void)next_token(s);
	}
}

static struct image_memory text_measure(const char *text, size_t size)
{
	/* Machine code is about as long as its text. */
	struct image_memory m = {.perhaps = size};
	struct scan s = {.at = text, .end = text + size};
	struct token before = {0};
	int depth = 0;

	for (struct token t = next_token(&s); t.size; before = t, t = next_token(&s)) {
		depth += is(t, "{") || is(t, "(");
		depth -= (is(t, "}") || is(t, ")")) && depth;
		if (!depth && (is(t, ".global") || is(t, ".const")))
			variables_scan(&s, !is(before, ".extern"), &m);
	}
	return m;
}

/* ---- Machine code ---- */

/* NULL: it is not all there. */
static const void *part(const void *image, size_t size, uint64_t offset, uint64_t bytes)
{
	return offset <= size && bytes <= size - offset ? (const char *)image + offset : NULL;
}

static bool name_starts(const char *names, uint64_t names_size, uint32_t at, const char *text)
{
	return at < names_size && names_size - at > strlen(text) &&
	       memcmp(names + at, text, strlen(text)) == 0;
}

static struct image_memory elf_measure(const void *image, size_t size)
{
	struct image_memory m = {0};
	Elf64_Ehdr header;
	Elf64_Shdr section, strings;

	if (!part(image, size, 0, sizeof(header)))
		return m;
	memcpy(&header, image, sizeof(header));
	if (header.e_machine != ELF_MACHINE_CUDA || header.e_ident[EI_CLASS] != ELFCLASS64 ||
	    header.e_shentsize != sizeof(section) || header.e_shstrndx >= header.e_shnum)
		return m;
	const char *table =
		part(image, size, header.e_shoff, (uint64_t)header.e_shnum * sizeof(section));
	if (!table)
		return m;
	memcpy(&strings, table + header.e_shstrndx * sizeof(strings), sizeof(strings));
	const char *names = part(image, size, strings.sh_offset, strings.sh_size);
	for (unsigned int i = 0; names && i < header.e_shnum; i++) {
		memcpy(&section, table + i * sizeof(section), sizeof(section));
		if (!(section.sh_flags & SHF_ALLOC))
			continue;
		if (name_starts(names, strings.sh_size, section.sh_name, ".nv.global"))
			variable_add(&m, section.sh_size, true);
		else if (name_starts(names, strings.sh_size, section.sh_name, ".text") ||
			 name_starts(names, strings.sh_size, section.sh_name, ".nv.constant"))
			variable_add(&m, section.sh_size, false);
	}
	return m;
}

/* The driver takes one of the entries: which, and what is in those that are compressed, it knows.
 */
static struct image_memory fatbin_measure(const void *image, size_t size)
{
	struct image_memory m = {.surely = UINT64_MAX};
	struct fatbin_header header = {0};
	struct fatbin_entry entry;

	if (part(image, size, 0, sizeof(header)))
		memcpy(&header, image, sizeof(header));
	uint64_t at = header.header_size, end = sum(at, header.size);
	while (at < end && part(image, size, at, sizeof(entry))) {
		memcpy(&entry, (const char *)image + at, sizeof(entry));
		const void *data = part(image, size, sum(at, entry.header_size), entry.size);
		struct image_memory one = {0};

		if (!data || entry.header_size < sizeof(entry))
			break;
		if (entry.kind == FATBIN_ELF && !(entry.flags & FATBIN_COMPRESSED))
			one = elf_measure(data, entry.size);
		else if (entry.kind == FATBIN_PTX && !(entry.flags & FATBIN_COMPRESSED))
			one = text_measure(data, strnlen(data, entry.size));
		m.surely = MIN(m.surely, one.surely);
		m.perhaps = MAX(m.perhaps, sum(one.surely, one.perhaps));
		at = sum(at, sum(entry.header_size, entry.size));
	}
	if (m.surely == UINT64_MAX)
		m.surely = 0;
	m.perhaps -= MIN(m.perhaps, m.surely);
	return m;
}

/* A text may be shorter than that; none of the magic numbers has a byte that is 0. */
static uint32_t magic_of(const void *image, size_t size)
{
	uint32_t magic = 0;

	memcpy(&magic, image, strnlen(image, MIN(size, sizeof(magic))));
	return magic;
}

struct image_memory image_measure(const void *image, size_t size)
{
	uint32_t magic = magic_of(image, size);

	if (magic == FATBIN_MAGIC)
		return fatbin_measure(image, size);
	if (memcmp(&magic, ELFMAG, SELFMAG) == 0)
		return elf_measure(image, size);
	return text_measure(image, strnlen(image, size));
}

struct image_memory image_in_memory(const void *image)
{
	/* One in another is no image, and might be in itself. */
	if (image && magic_of(image, SIZE_MAX) == FATBIN_WRAPPER_MAGIC)
		image = ((const struct fatbin_wrapper *)image)->data;
	if (!image || magic_of(image, SIZE_MAX) == FATBIN_WRAPPER_MAGIC)
		return (struct image_memory){0};
	/* Its end is where it says. */
	return image_measure(image, SIZE_MAX / 2);
}

struct image_memory image_of_file(const char *path)
{
	struct image_memory m = {0};
	struct statx st;
	cleanup_close int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

	if (fd < 0 || statx(fd, "", AT_EMPTY_PATH, STATX_SIZE | STATX_TYPE, &st) < 0 ||
	    !st.stx_size || st.stx_size > BOOKS_MOST || !S_ISREG(st.stx_mode))
		return m;
	void *image = mmap(NULL, st.stx_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (image == MAP_FAILED)
		return m;
	m = image_measure(image, st.stx_size);
	munmap(image, st.stx_size);
	return m;
}
