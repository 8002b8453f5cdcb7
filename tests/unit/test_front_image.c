/* The memory that images of code say they take. */
#include <elf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/macros.h"
#include "front/books.h"
#include "front/cuda/charge/image.h"

#define MIB(n) ((uint64_t)(n) << 20)

static void variables_of_text_are_measured(void **state)
{
	/* perhaps: what there is beside the text itself. */
	static const struct {
		const char *text;
		uint64_t surely, perhaps;
	} cases[] = {
		{"", 0, 0},
		{".version 6.0\n.target sm_50\n", 0, 0},
		{".visible .global .align 16 .b8 big[4194304];", MIB(4), 0},
		{".global .align 4 .f32 a[524288], b[1048576];", MIB(6), 0},
		{".global .v4 .f32 a[1048576];", MIB(16), 0},
		{".global .u64 a[512][1024];", MIB(4), 0},
		{".global .b8 odd[2097153];", MIB(2) + 1, MIB(2) - 1},
		{".global .b8 small[100]; .const .b8 c[4];", 0, 104},
		{".global .u32 one = 7;\n.global .u16 two[] = {1, 2, 3};", 0, 4 + 6},
		{".global .u64 nested[2][2] = {{1, 2}, {3, 4}}, next;", 0, 32 + 8},
		{".extern .global .b8 elsewhere[4194304];", 0, 0},
		{".global .attribute(.managed) .align 4 .b8 m[4194304];", 0, MIB(4)},
		{"// .global .b8 no[4194304];\n/* .global .b8 no[4194304]; */ .global .b8 y[8];", 0,
		 8},
		{".entry k(.param .u64 .ptr .global .align 16 p)\n{ ld.global.u32 %r1, [%rd1];\n"
		 "\t.local .b8 depot[4194304];\n}\n.global .b8 after[16];",
		 0, 16},
		{".shared .b8 s[4194304]; .file 1 \"a.global .b8 x[4194304];\"", 0, 0},
		{".global .b8 huge[0xffffffffffffffff];", BOOKS_MOST + 1, 0},
		{".global .b64 huge[0x4000000000000000];", BOOKS_MOST + 1, 0},
		{".global .b8 cut[4194304", MIB(4), 0},
		{".global", 0, 0},
		{".global .b8", 0, 0},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct image_memory m = image_in_memory(cases[i].text);
		uint64_t perhaps = m.perhaps - MIN(m.perhaps, strlen(cases[i].text));

		if (m.surely != cases[i].surely ||
		    (m.surely <= BOOKS_MOST && perhaps != cases[i].perhaps))
			fail_msg("%s: %lu and %lu", cases[i].text, (unsigned long)m.surely,
				 (unsigned long)perhaps);
	}
}

/* A cubin with one section of each name, of those sizes. */
static size_t cubin_make(char *to, const char *const *names, const uint64_t *sizes, size_t count)
{
	Elf64_Ehdr header = {.e_machine = 190,
			     .e_shoff = sizeof(header),
			     .e_shentsize = sizeof(Elf64_Shdr),
			     .e_shnum = (uint16_t)(count + 1),
			     .e_shstrndx = (uint16_t)count};
	Elf64_Shdr section[8] = {0};
	char strings[256] = "";
	uint32_t used = 1;

	memcpy(header.e_ident, ELFMAG, SELFMAG);
	header.e_ident[EI_CLASS] = ELFCLASS64;
	for (size_t i = 0; i < count; i++) {
		section[i] =
			(Elf64_Shdr){.sh_name = used, .sh_flags = SHF_ALLOC, .sh_size = sizes[i]};
		used += (uint32_t)sprintf(strings + used, "%s", names[i]) + 1;
	}
	section[count] = (Elf64_Shdr){
		.sh_offset = sizeof(header) + (count + 1) * sizeof(Elf64_Shdr), .sh_size = used};
	memcpy(to, &header, sizeof(header));
	memcpy(to + sizeof(header), section, (count + 1) * sizeof(Elf64_Shdr));
	memcpy(to + section[count].sh_offset, strings, used);
	return section[count].sh_offset + used;
}

static const char *const names[] = {".text.kernel", ".nv.global", ".nv.constant0.kernel",
				    ".nv.shared.kernel"};

static void sections_of_machine_code_are_measured(void **state)
{
	static const uint64_t sizes[] = {5000, MIB(8), 352, MIB(1)};
	char image[2048];
	size_t size = cubin_make(image, names, sizes, ARRAY_SIZE(names));
	struct image_memory m = image_in_memory(image);

	assert_int_equal(m.surely, MIB(8));
	assert_int_equal(m.perhaps, 5352);
	/* Cut off anywhere, it is not read beyond. */
	for (size_t n = 0; n < size; n++) {
		char *copy = malloc(n ? n : 1);

		memcpy(copy, image, n);
		(void)image_measure(copy, n);
		free(copy);
	}
}

struct entry {
	uint16_t kind, version;
	uint32_t header_size;
	uint64_t size;
	char rest[40];
	uint64_t flags;
};

static size_t entry_add(char *to, uint16_t kind, uint64_t flags, const void *data, size_t size)
{
	struct entry e = {.kind = kind, .header_size = sizeof(e), .size = size, .flags = flags};

	memcpy(to, &e, sizeof(e));
	memcpy(to + sizeof(e), data, size);
	return sizeof(e) + size;
}

static void the_least_of_a_fat_binarys_entries_is_sure(void **state)
{
	static const uint64_t sizes[] = {5000, MIB(8), 352, 0};
	static const char text[] = ".global .b8 big[4194304];";
	char cubin[2048], image[8192];
	size_t cubin_size = cubin_make(cubin, names, sizes, ARRAY_SIZE(names));
	struct {
		uint32_t magic;
		uint16_t version, header_size;
		uint64_t size;
	} header = {.magic = 0xba55ed50u, .version = 1, .header_size = 16};
	struct {
		uint32_t magic, version;
		const void *data, *unused;
	} wrapper = {.magic = 0x466243b1u, .version = 1, .data = image};

	header.size = entry_add(image + 16, 2, 0, cubin, cubin_size);
	memcpy(image, &header, sizeof(header));
	assert_int_equal(image_in_memory(&wrapper).surely, MIB(8));
	header.size += entry_add(image + 16 + header.size, 1, 0, text, sizeof(text));
	memcpy(image, &header, sizeof(header));
	struct image_memory m = image_in_memory(&wrapper);
	assert_int_equal(m.surely, MIB(4));
	assert_int_equal(m.surely + m.perhaps, MIB(8) + 5352);
	/* Nobody knows what is in that one. */
	header.size += entry_add(image + 16 + header.size, 2, 0x2000, text, sizeof(text));
	memcpy(image, &header, sizeof(header));
	m = image_in_memory(&wrapper);
	assert_int_equal(m.surely, 0);
	assert_int_equal(m.perhaps, MIB(8) + 5352);
}

static void a_file_is_measured_as_memory_is(void **state)
{
	char path[] = "/tmp/carve-test-image-XXXXXX";
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_int_equal(image_of_file(path).surely, 0);
	assert_int_equal(write(fd, ".global .b8 big[4194304];", 25), 25);
	close(fd);
	assert_int_equal(image_of_file(path).surely, MIB(4));
	unlink(path);
	assert_int_equal(image_of_file(path).surely, 0);
	assert_int_equal(image_of_file("/tmp").perhaps, 0);
	assert_int_equal(image_of_file(NULL).perhaps, 0);
	assert_int_equal(image_in_memory(NULL).perhaps, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(variables_of_text_are_measured),
		cmocka_unit_test(sections_of_machine_code_are_measured),
		cmocka_unit_test(the_least_of_a_fat_binarys_entries_is_sure),
		cmocka_unit_test(a_file_is_measured_as_memory_is),
	};

	return cmocka_run_group_tests_name("image", tests, NULL, NULL);
}
