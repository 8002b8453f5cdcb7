/* Counts the instructions that the calling thread executes between two points: the processor traps
 * after each of them (x86's trap flag), and SIGTRAP is taken for that. The same code counts the
 * same on a slow machine and on a busy one. It needs no other process and no right; it takes
 * microseconds an instruction, tens of them in some virtual machines. A repeated string instruction
 * counts each time. */
#pragma once

#include <stdbool.h>

struct step_count {
	long instructions;
	long locked; /* of them: locked ones, and full fences */
	long syscalls;
};

/* Once, before the others. False: this machine does not do it. */
bool step_init(void);
/* The code between the two is counted, and a constant number of their own. No thread may be
 * started there. */
void step_begin(void);
struct step_count step_end(void);
