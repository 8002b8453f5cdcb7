/* The functions that a shared library exports, as its file says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <elf.h>

#include "base/macros.h"
#include "slice/exports.h"

#define STRINGS "\0cuOne\0cuData\0cuLocal\0cuUndefined\0cuWeak"
#define NAME(offset, bind, type, section)                                                        \
	{                                                                                        \
		.st_name = (offset), .st_info = ELF64_ST_INFO(bind, type), .st_shndx = (section) \
	}

/* A library of two sections: the symbols, and their names at its end. */
struct library {
	Elf64_Ehdr header;
	Elf64_Shdr section[2];
	Elf64_Sym symbol[6];
	char strings[sizeof(STRINGS)];
};

static struct library library_make(void)
{
	return (struct library){
		.header = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB},
			   .e_shoff = offsetof(struct library, section),
			   .e_shentsize = sizeof(Elf64_Shdr),
			   .e_shnum = 2},
		.section = {{.sh_type = SHT_DYNSYM,
			     .sh_offset = offsetof(struct library, symbol),
			     .sh_size = sizeof(((struct library *)NULL)->symbol),
			     .sh_link = 1},
			    {.sh_type = SHT_STRTAB,
			     .sh_offset = offsetof(struct library, strings),
			     .sh_size = sizeof(STRINGS)}},
		.symbol = {NAME(0, STB_LOCAL, STT_NOTYPE, SHN_UNDEF),
			   NAME(1, STB_GLOBAL, STT_FUNC, 1), NAME(7, STB_GLOBAL, STT_OBJECT, 1),
			   NAME(14, STB_LOCAL, STT_FUNC, 1),
			   NAME(22, STB_GLOBAL, STT_FUNC, SHN_UNDEF),
			   NAME(34, STB_WEAK, STT_FUNC, 1)},
		.strings = STRINGS,
	};
}

static void note(void *arg, const char *name)
{
	char *seen = arg;

	strcat(seen, name);
	strcat(seen, " ");
}

static void assert_exports(const void *data, size_t size, const char *expected)
{
	char seen[128] = "";

	exports_each(data, size, note, seen);
	assert_string_equal(seen, expected);
}

static void test_defined_functions_of_a_library_are_its_exports(void **state)
{
	const struct library library = library_make();

	assert_exports(&library, sizeof(library), "cuOne cuWeak ");
}

static void test_a_file_that_is_cut_off_or_no_library_exports_nothing(void **state)
{
	const struct library library = library_make();
	char seen[128];

	for (size_t size = 0; size < offsetof(struct library, strings) + sizeof(STRINGS); size++) {
		seen[0] = '\0';
		exports_each(&library, size, note, seen);
		assert_string_equal(seen, "");
	}
	assert_exports("#!/bin/sh\n", 10, "");
}

static void test_wrong_numbers_in_a_library_lead_nowhere(void **state)
{
	struct library library = library_make();

	library.section[0].sh_link = 2;
	assert_exports(&library, sizeof(library), "");
	library = library_make();
	library.section[0].sh_offset = UINT64_MAX;
	assert_exports(&library, sizeof(library), "");
	library = library_make();
	library.section[1].sh_size = UINT64_MAX;
	assert_exports(&library, sizeof(library), "");
	library = library_make();
	library.symbol[1].st_name = UINT32_MAX;
	assert_exports(&library, sizeof(library), "cuWeak ");
	library = library_make();
	library.section[1].sh_size = 36; /* the last name has no end */
	assert_exports(&library, sizeof(library), "cuOne ");
	library = library_make();
	library.header.e_shoff = UINT64_MAX - 8;
	assert_exports(&library, sizeof(library), "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defined_functions_of_a_library_are_its_exports),
		cmocka_unit_test(test_a_file_that_is_cut_off_or_no_library_exports_nothing),
		cmocka_unit_test(test_wrong_numbers_in_a_library_lead_nowhere),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
