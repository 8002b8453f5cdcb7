#include "step.h"

#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <ucontext.h>

#define TRAP_FLAG 0x100
#define NOPS 32

static volatile bool counting;
static struct step_count count;

/* Those of REX are the last. */
static bool is_prefix(uint8_t byte)
{
	return (byte & 0xF0) == 0x40 || (byte >= 0x64 && byte <= 0x67) || byte == 0x2E ||
	       byte == 0x36 || byte == 0x3E || byte == 0x26 || byte == 0xF2 || byte == 0xF3;
}

/* By a prefix, or as each exchange with memory (not with a register) is; or mfence. */
static bool is_locked(const uint8_t *at)
{
	while (is_prefix(*at))
		at++;
	if (*at == 0xF0)
		return true;
	if (*at == 0x86 || *at == 0x87)
		return at[1] < 0xC0;
	return at[0] == 0x0F && at[1] == 0xAE && at[2] == 0xF0;
}

static bool is_syscall(const uint8_t *at)
{
	return at[0] == 0x0F && at[1] == 0x05;
}

/* Before each instruction that is to be counted; once more after the last. */
static void on_trap(int number, siginfo_t *info, void *context)
{
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
	const uint8_t *next = (const uint8_t *)registers[REG_RIP];

	if (!counting) {
		registers[REG_EFL] &= ~TRAP_FLAG;
		return;
	}
	registers[REG_EFL] |= TRAP_FLAG;
	count.instructions++;
	count.locked += is_locked(next);
	count.syscalls += is_syscall(next);
}

void step_begin(void)
{
	count = (struct step_count){0};
	counting = true;
	__asm__ volatile("int3" ::: "memory");
}

struct step_count step_end(void)
{
	counting = false;
	return count;
}

static long step_nops(bool some)
{
	step_begin();
	if (some)
		__asm__ volatile(".fill %c0, 1, 0x90" ::"i"(NOPS));
	return step_end().instructions;
}

bool step_init(void)
{
	struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};

	if (sigaction(SIGTRAP, &action, NULL) < 0)
		return false;
	return step_nops(true) - step_nops(false) >= NOPS;
}
