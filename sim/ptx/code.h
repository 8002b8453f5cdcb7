/* The compiled form: what lowering writes and the executor reads. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ptx/arena.h"
#include "ptx/ops.h"
#include "ptx/ptx.h"
#include "ptx/types.h"

#define WARP_LANES 32
#define BARRIER_COUNT 16
/* No frame of registers is larger (bytes); text that asks for more is refused. */
#define FRAME_BYTES_MAX (16u << 20)
/* Registers start after 256 bytes that take what `_` swallows; so no register has offset 0. */
#define FRAME_SINK_BYTES 256u

struct warp;
struct insn;
/* Runs one instruction for the lanes of `mask` (never 0). */
typedef void (*exec_fn)(struct warp *warp, const struct insn *insn, uint32_t mask);

/* Where a value lies: a byte offset (a multiple of 4) into the frame's registers, or, with bit 0,
 * into the module's constants. A register is an array of 32 values of its size; a predicate is one
 * 32-bit word, a bit a lane. */
typedef uint32_t value_ref;
#define VALUE_CONSTANT 1u
#define VALUE_NONE UINT32_MAX

enum insn_space {
	SPACE_GENERIC,
	SPACE_GLOBAL, /* and const */
	SPACE_SHARED,
	SPACE_LOCAL,
	SPACE_FRAME, /* local memory, relative to the frame of the function */
	SPACE_PARAM, /* the kernel's parameters */
	SPACE_CONST, /* isspacep and cvta only: elsewhere it is SPACE_GLOBAL */
};

/* insn.flags of floating point instructions. */
enum {
	FLAG_ROUND_MASK = 7, /* enum rounding */
	FLAG_FTZ = 8,
	FLAG_SAT = 16,
	FLAG_NAN = 32,
	FLAG_XORSIGN = 64,
	FLAG_INTEGRAL = 128, /* cvt: round to an integral value */
	FLAG_RELU = 256,
	FLAG_ABS = 512,
};

enum rounding {
	ROUND_NEAREST,
	ROUND_ZERO,
	ROUND_DOWN,
	ROUND_UP,
	ROUND_AWAY, /* to nearest, ties away from zero */
};

/* insn.flags of the add_cc family. */
enum {
	FLAG_CARRY_IN = 1,
	FLAG_CARRY_OUT = 2,
	FLAG_BORROW = 4,
};

/* insn.flags of memory instructions. */
enum {
	FLAG_ADDRESS_32 = 1, /* the address register has 32 bits */
	FLAG_SIGNED = 2,     /* a narrower value is sign-extended */
	FLAG_POLL = 4,       /* volatile, relaxed, acquire: may be a spin */
	FLAG_ACQUIRE = 8,
	FLAG_RELEASE = 16,
	FLAG_READ_ONLY = 32, /* const: stores are refused when lowering */
};

struct insn {
	exec_fn run;
	value_ref dst;
	value_ref src[4];
	value_ref guard; /* 0: none; else a predicate, bit 0: negated */
	uint32_t flags;
	uint32_t extra; /* index into module->extra: more operands */
	union {
		int64_t offset; /* memory */
		struct {
			uint32_t target;    /* index of code */
			int32_t reconverge; /* index of a join, -1: none before the end */
		};
		struct function *callee;
	};
	uint16_t op;     /* enum ptx_op */
	uint8_t type;    /* enum type, of the instruction */
	uint8_t detail;  /* a detail for the handler: a space, an operation, a count */
	uint8_t size[2]; /* bytes of a register: destination, source */
	uint32_t line;
};

/* A formal or actual parameter of a device function: in a register of the frame or in its local
 * memory. */
struct slot {
	bool in_register;
	uint32_t place; /* value_ref or byte offset in the frame's local memory */
	uint32_t size;
};

struct relocation {
	uint32_t place; /* byte offset in constants.bytes, or in the variable's initial bytes */
	uint8_t size;   /* bytes of the address; 1: one byte of it, chosen by `shift` */
	uint8_t shift;  /* bits, 0 unless size is 1 */
	bool function;
	bool generic; /* generic(name): a shared address gets its window */
	void *target; /* struct variable or struct function */
	int64_t addend;
};

enum variable_space {
	VARIABLE_GLOBAL,
	VARIABLE_CONST,
	VARIABLE_SHARED,
};

struct variable {
	const char *name;
	enum variable_space space;
	uint64_t size;
	uint32_t align;
	bool is_extern, visible, weak;
	size_t source;
	unsigned char *init; /* the first init_size bytes; zeros follow */
	size_t init_size, init_room;
	struct relocation *relocations;
	size_t relocation_count, relocation_room;
	uint64_t address;            /* bound; of shared: the offset */
	struct variable *definition; /* an extern's definition elsewhere; else itself */
	int index;                   /* in ptx_module.variables; -1: shared */
	struct variable *next;
	/* link.c: the kernels that reach a shared variable. */
	struct function *user;
	bool shared_by_several;
};

/* One reference of a function to another or to a variable, for the call graph. */
struct reference {
	struct reference *next;
	void *target;
	bool function, taken; /* taken: the address of a function, not a call */
};

enum intrinsic {
	INTRINSIC_NONE,
	INTRINSIC_VPRINTF,
	INTRINSIC_MALLOC,
	INTRINSIC_FREE,
	INTRINSIC_ASSERTFAIL,
};

struct function {
	const char *name;
	bool is_entry, is_extern, is_defined, visible, weak, called;
	bool calls_pointers; /* itself: what it calls so it may know from memory alone */
	size_t source;
	uint32_t line;
	uint32_t number; /* PTX_WINDOW_CODE + 16 * number is its address */
	enum intrinsic intrinsic;
	struct slot *params, *returns;
	uint32_t param_count, return_count;
	struct ptx_kernel_info info; /* entries only */
	struct function *definition;
	struct function *next;
	/* While its text is compiled, and then moved into the module's code. */
	struct insn *code;
	size_t code_count, code_room;
	uint32_t entry; /* index of the first instruction in the module's code */
	uint32_t register_bytes;
	uint32_t local_bytes; /* bytes of one frame */
	uint32_t registers;   /* pressure, in 32-bit registers */
	struct reference *references;
	/* link.c */
	int visit;
	uint32_t stack_bytes, shared_end;
	struct function *reached_by;
};

/* Bytes that grow. */
struct buffer {
	unsigned char *bytes; /* 64-byte aligned */
	size_t size, room;
};

struct ptx_module {
	struct arena arena;
	struct insn *code;
	size_t code_count;
	uint32_t *extra;
	size_t extra_count, extra_room;
	struct buffer constants;
	struct relocation *relocations; /* the relocations of constants */
	size_t relocation_count, relocation_room;
	struct function *functions; /* a list, newest first */
	struct function **by_number;
	uint32_t function_count;
	struct variable *variables; /* a list, newest first */
	struct function **kernels;
	size_t kernel_count;
	struct variable **placed; /* global and const */
	struct ptx_variable_info *placed_info;
	size_t placed_count;
	uint32_t const_bytes;
	uint32_t dynamic_shared; /* where dynamic shared memory starts */
	uint32_t registers_max;
	bool bound;
};
