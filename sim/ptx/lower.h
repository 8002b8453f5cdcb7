/* Helpers of the lowering: from an instruction as written to internal operations. */
#pragma once

#include "ptx/compile.h"

/* Operations of atom and red. */
enum atom_op {
	ATOM_ADD,
	ATOM_MIN,
	ATOM_MAX,
	ATOM_AND,
	ATOM_OR,
	ATOM_XOR,
	ATOM_EXCH,
	ATOM_CAS,
	ATOM_INC,
	ATOM_DEC,
};
#define ATOM_OP_SHIFT 16 /* in insn.flags */

enum half_op {
	HALF_ADD,
	HALF_SUB,
	HALF_MUL,
	HALF_FMA,
	HALF_NEG,
	HALF_ABS,
	HALF_MIN,
	HALF_MAX,
	HALF_EX2,
	HALF_TANH,
};

enum shuffle {
	SHUFFLE_UP,
	SHUFFLE_DOWN,
	SHUFFLE_BFLY,
	SHUFFLE_IDX,
};

enum comparison {
	COMPARE_EQ,
	COMPARE_NE,
	COMPARE_LT,
	COMPARE_LE,
	COMPARE_GT,
	COMPARE_GE,
	COMPARE_NUM,
	COMPARE_NAN,
	COMPARE_EQU,
	COMPARE_NEU,
	COMPARE_LTU,
	COMPARE_LEU,
	COMPARE_GTU,
	COMPARE_GEU,
	COMPARE_NONE,
};

enum testp {
	TESTP_FINITE,
	TESTP_INFINITE,
	TESTP_NUMBER,
	TESTP_NOTANUMBER,
	TESTP_NORMAL,
	TESTP_SUBNORMAL,
};

/* insn.detail of bar_red and redux. */
enum reduction {
	REDUCE_POPC,
	REDUCE_AND,
	REDUCE_OR,
	REDUCE_XOR,
	REDUCE_ADD,
	REDUCE_MIN,
	REDUCE_MAX,
};

/* insn.type of mbarrier. */
enum mbarrier_action {
	MBARRIER_INIT,
	MBARRIER_INVAL,
	MBARRIER_EXPECT_TX,
	MBARRIER_COMPLETE_TX,
	MBARRIER_ARRIVE,
	MBARRIER_ARRIVE_TX,
	MBARRIER_DROP,
	MBARRIER_DROP_TX,
	MBARRIER_COPIED, /* cp.async.mbarrier.arrive */
	MBARRIER_TEST,
	MBARRIER_TEST_PARITY,
};

enum wmma_matrix {
	WMMA_A,
	WMMA_B,
	WMMA_C, /* and the result */
};

/* In module->extra, as words: what a wmma instruction says and the registers it names. */
struct wmma {
	uint32_t written, read; /* registers */
	uint32_t m, n, k;
	uint32_t matrix, by_column; /* load, store */
	uint32_t saturates;
	uint32_t type_in, type_c, type_d;
	uint32_t a_registers, b_registers;
	uint32_t refs[4 * 8]; /* only as many as there are */
};

enum special {
	SPECIAL_TID_X, /* x y z stand together */
	SPECIAL_TID_Y,
	SPECIAL_TID_Z,
	SPECIAL_NTID_X,
	SPECIAL_NTID_Y,
	SPECIAL_NTID_Z,
	SPECIAL_CTAID_X,
	SPECIAL_CTAID_Y,
	SPECIAL_CTAID_Z,
	SPECIAL_NCTAID_X,
	SPECIAL_NCTAID_Y,
	SPECIAL_NCTAID_Z,
	SPECIAL_ZERO, /* ranks in a cluster of one block */
	SPECIAL_ONE,
	SPECIAL_LANEID,
	SPECIAL_WARPID,
	SPECIAL_NWARPID,
	SPECIAL_SMID,
	SPECIAL_NSMID,
	SPECIAL_GRIDID,
	SPECIAL_CLOCK,
	SPECIAL_CLOCK_HI,
	SPECIAL_CLOCK64,
	SPECIAL_TIMER,
	SPECIAL_TIMER_LO,
	SPECIAL_TIMER_HI,
	SPECIAL_LANEMASK_EQ,
	SPECIAL_LANEMASK_LE,
	SPECIAL_LANEMASK_LT,
	SPECIAL_LANEMASK_GE,
	SPECIAL_LANEMASK_GT,
	SPECIAL_DYNAMIC_SHARED,
	SPECIAL_TOTAL_SHARED,
	SPECIAL_WORKSPACE_HI,
	SPECIAL_WORKSPACE_LO,
};
/* Bytes: 4 or 8. */
unsigned special_size(int special);

/* --- modifiers; each is consumed once, and what is left over fails */
bool modifier_take(struct compiler *c, const char *name);
/* The next one that is a type; fails when there is none. */
enum type modifier_type(struct compiler *c);
/* Index of the one that stands in `names` (NULL-terminated), -1: none. */
int modifier_choose(struct compiler *c, const char *const *names);
/* Rounding, ftz, sat, approx ...: FLAG_*. */
uint32_t modifier_float_flags(struct compiler *c);
/* Fails with the instruction's name. */
void lower_fail(struct compiler *c, const char *what) __attribute__((noreturn));
/* Fails unless min <= operands <= max. */
void operands_expect(struct compiler *c, unsigned min, unsigned max);

/* Says where the memory is, not what is done to it. */
enum insn_space modifier_space(struct compiler *c);
/* Words that only hint at caches or scopes. */
void modifier_hints(struct compiler *c);
/* Acquire, release and so on: FLAG_*. */
uint32_t modifier_order(struct compiler *c);

/* --- code */
struct insn *lower_emit(struct compiler *c, enum ptx_op op);
struct insn *lower_emit1(struct compiler *c, enum ptx_op op, value_ref dst, value_ref a);
struct insn *lower_emit2(struct compiler *c, enum ptx_op op, value_ref dst, value_ref a,
			 value_ref b);
struct insn *lower_emit3(struct compiler *c, enum ptx_op op, value_ref dst, value_ref a,
			 value_ref b, value_ref d);
/* Appends to module->extra; returns the index. */
uint32_t lower_extra(struct compiler *c, const uint32_t *words, size_t count);
/* A move of a register's size: 2, 4 or 8. */
enum ptx_op lower_mov_op(struct compiler *c, unsigned size);

/* --- operands. A source may be a register, a number, a special register or an address; its size
 * is the type's. */
value_ref lower_source(struct compiler *c, const struct operand *operand, enum type type);
/* As ld, st and cvt have it: a register may be wider; *ret_size is its size. */
value_ref lower_source_wide(struct compiler *c, const struct operand *operand, enum type type,
			    unsigned *ret_size);
value_ref lower_dest(struct compiler *c, const struct operand *operand, enum type type);
value_ref lower_dest_wide(struct compiler *c, const struct operand *operand, enum type type,
			  unsigned *ret_size);
/* A predicate, !p included. */
value_ref lower_predicate(struct compiler *c, const struct operand *operand);
value_ref lower_predicate_dest(struct compiler *c, const struct operand *operand);
/* The destination's second half, d|p; 0 (swallowed) when there is none. */
value_ref lower_pair_dest(struct compiler *c, const struct operand *operand);
/* The meaning of an [address], made before the instruction that uses it. */
struct address {
	value_ref base;
	int64_t offset;
	enum insn_space space;
	uint32_t flags;
};
struct address lower_address(struct compiler *c, const struct operand *operand,
			     enum insn_space space);
/* Sets src[0], offset, detail and flags. */
void insn_address(struct insn *insn, const struct address *address, uint32_t flags);
/* Index of an integer type in a family of B3 (by size) and I6 (u16 s16 u32 s32 u64 s64). */
unsigned index_b3(struct compiler *c, enum type type);
unsigned index_i6(struct compiler *c, enum type type);

/* --- groups; `arg` is what the table of instructions says */
typedef void (*lower_fn)(struct compiler *c, int arg);
struct lower_rule {
	const char *name;
	lower_fn lower;
	int arg;
};
/* Ended by a rule without a name. */
extern const struct lower_rule lower_rules_int[], lower_rules_float[], lower_rules_compare[],
	lower_rules_move[], lower_rules_memory[], lower_rules_flow[], lower_rules_warp[],
	lower_rules_mbarrier[], lower_rules_wmma[];
/* add, sub, mul, mad, div, min, max, abs, neg of floating point types. */
void lower_float_arith(struct compiler *c, enum type type);
/* cp.async.mbarrier (lower_mbarrier.c). */
void lower_copy_arrive(struct compiler *c);
