#include "front/direct.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "front/library.h"

/* Intel SDM, volume 2: FF /4 (JMP r/m64) and FF /2 (CALL r/m64) with rip-relative operands. The
 * code that takes their place is as long, so that a call returns to the same address. A linker that
 * finds the function within reach writes the same (x86-64 psABI, "Optimize GOTPCRELX
 * Relocations"). */
#define SITE_SIZE 6
static const uint8_t jump_through[] = {0xFF, 0x25}, call_through[] = {0xFF, 0x15};
static const uint8_t jump_first = 0xE9, after_jump = 0x90;
static const uint8_t call_first[] = {0x67, 0xE8};

/* The instruction at `site`, which is executed there, in the copy at `code`. */
static void site_bind(const uint8_t *site, uint8_t *code)
{
	bool jump = memcmp(site, jump_through, sizeof(jump_through)) == 0;
	int32_t operand;

	/* A debugger's breakpoint, for one. */
	if (!jump && memcmp(site, call_through, sizeof(call_through)) != 0)
		return;
	memcpy(&operand, site + 2, sizeof(operand));
	const void *target = atomic_load((void *_Atomic *)(site + SITE_SIZE + operand));
	int64_t distance = (int64_t)((uintptr_t)target - (uintptr_t)(site + SITE_SIZE)) + jump;
	int32_t direct = (int32_t)distance;

	if (direct != distance)
		return;
	if (jump) {
		code[0] = jump_first;
		memcpy(code + 1, &direct, sizeof(direct));
		code[SITE_SIZE - 1] = after_jump;
	} else {
		memcpy(code, call_first, sizeof(call_first));
		memcpy(code + sizeof(call_first), &direct, sizeof(direct));
	}
}

void direct_bind(void)
{
	static atomic_flag begun = ATOMIC_FLAG_INIT;
	size_t size = (size_t)(front_code_end - front_code);

	if (atomic_flag_test_and_set(&begun) ||
	    (uintptr_t)front_code % (size_t)sysconf(_SC_PAGESIZE))
		return;
	uint8_t *copy =
		mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (copy == MAP_FAILED)
		return;
	memcpy(copy, front_code, size);
	for (uint32_t i = 0; i < front_site_count; i++) {
		const uint8_t *site = (const uint8_t *)&front_sites[i] + front_sites[i];

		site_bind(site, copy + (site - front_code));
	}
	if (mprotect(copy, size, PROT_READ | PROT_EXEC) < 0 ||
	    mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)front_code) ==
		    MAP_FAILED)
		munmap(copy, size);
}
