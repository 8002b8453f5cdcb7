/* Register pressure: the most 32-bit registers live at one instruction, from the usual backward
 * analysis of liveness. */
#include <string.h>

#include "base/macros.h"
#include "ptx/flow.h"
#include "ptx/lower.h"

/* Bits of all blocks' sets, beyond which pressure is not worth its cost: 64 MiB. */
#define SET_BITS_MAX (1ULL << 29)
/* The other needs of a thread: addresses of parameters, the stack and the program itself. */
#define REGISTERS_BASE 8
#define REGISTERS_MAX 255

struct liveness {
	struct compiler *c;
	const struct graph *graph;
	uint32_t words;  /* the size of a set */
	uint32_t *index; /* a register's number, by its place / 4 */
	uint8_t *weight; /* 32-bit registers, by index */
	uint64_t *in;    /* a set a block */
};

typedef void (*visit_fn)(struct liveness *l, uint64_t *set, value_ref ref);

static void visit(struct liveness *l, uint64_t *set, value_ref ref, visit_fn fn)
{
	if (ref >= FRAME_SINK_BYTES && ref < l->c->function->register_bytes &&
	    !(ref & VALUE_CONSTANT))
		fn(l, set, ref);
}

static void set_add(struct liveness *l, uint64_t *set, value_ref ref)
{
	uint32_t i = l->index[ref / 4];

	set[i / 64] |= 1ULL << i % 64;
}

static void set_remove(struct liveness *l, uint64_t *set, value_ref ref)
{
	uint32_t i = l->index[ref / 4];

	set[i / 64] &= ~(1ULL << i % 64);
}

static void visit_matrices(struct liveness *l, const struct insn *insn, uint64_t *set, bool written,
			   visit_fn fn)
{
	const struct wmma *w = (const void *)&l->c->module->extra[insn->extra];
	uint32_t first = written ? 0 : w->written, count = written ? w->written : w->read;

	for (uint32_t i = 0; i < count; i++)
		visit(l, set, w->refs[first + i], fn);
}

static void visit_call(struct liveness *l, const struct insn *insn, uint64_t *set, bool written,
		       visit_fn fn)
{
	const uint32_t *words = &l->c->module->extra[insn->extra];
	uint32_t returned = words[0], arguments = words[1];
	uint32_t first = written ? 0 : returned, last = written ? returned : returned + arguments;

	for (uint32_t i = first; i < last; i++) {
		if (words[2 + 3 * i])
			visit(l, set, words[2 + 3 * i + 1], fn);
	}
}

/* `step` words a register. */
static void visit_vector(struct liveness *l, const struct insn *insn, uint64_t *set, uint32_t count,
			 uint32_t step, visit_fn fn)
{
	const uint32_t *words = &l->c->module->extra[insn->extra];

	for (uint32_t i = 0; i < count; i++)
		visit(l, set, words[(size_t)step * i], fn);
}

/* The registers that an instruction names besides dst and src. */
static void visit_extra(struct liveness *l, const struct insn *insn, uint64_t *set, bool written,
			visit_fn fn)
{
	switch (insn->op) {
	case OP_ld_any:
	case OP_st_any:
		if (written == (insn->op == OP_ld_any))
			visit_vector(l, insn, set, insn->size[1], 2, fn);
		break;
	case OP_unpack:
	case OP_pack:
		if (written == (insn->op == OP_unpack))
			visit_vector(l, insn, set, insn->detail, 1, fn);
		break;
	case OP_call:
	case OP_call_indirect:
		visit_call(l, insn, set, written, fn);
		break;
	case OP_wmma_load:
	case OP_wmma_store:
	case OP_wmma_mma:
		visit_matrices(l, insn, set, written, fn);
		break;
	default:
		break;
	}
}

static void step_back(struct liveness *l, const struct insn *insn, uint64_t *set)
{
	unsigned sources = insn->op == OP_brx ? 1 : ARRAY_SIZE(insn->src);

	if (!insn->guard) {
		visit(l, set, insn->dst, set_remove);
		visit_extra(l, insn, set, true, set_remove);
	}
	for (unsigned i = 0; i < sources; i++)
		visit(l, set, insn->src[i], set_add);
	visit_extra(l, insn, set, false, set_add);
	visit(l, set, insn->guard & ~1u, set_add);
}

static void index_register(struct liveness *l, uint64_t *set, value_ref ref)
{
	if (l->index[ref / 4] == 0)
		l->index[ref / 4] = ++l->words; /* counted here first */
}

/* Gives the registers that appear numbers from 0, and returns how many there are. */
static uint32_t index_registers(struct liveness *l)
{
	const struct function *function = l->c->function;
	uint32_t slots = function->register_bytes / 4 + 1, count;

	l->index = compile_scratch(l->c, slots * sizeof(*l->index));
	for (size_t i = 0; i < function->code_count; i++) {
		const struct insn *insn = &function->code[i];

		visit(l, NULL, insn->dst, index_register);
		for (unsigned k = 0; k < (insn->op == OP_brx ? 1 : ARRAY_SIZE(insn->src)); k++)
			visit(l, NULL, insn->src[k], index_register);
		visit(l, NULL, insn->guard & ~1u, index_register);
		visit_extra(l, insn, NULL, true, index_register);
		visit_extra(l, insn, NULL, false, index_register);
	}
	count = l->words;
	l->weight = compile_scratch(l->c, count + 1);
	for (uint32_t i = 0; i < slots; i++) {
		/* The next register's start tells the size: a predicate takes 4 bytes, 16 bits 64.
		 */
		uint32_t next = i + 1;

		if (l->index[i] == 0)
			continue;
		l->index[i]--;
		while (next < slots && next < i + 64 && l->index[next] == 0)
			next++;
		l->weight[l->index[i]] = next - i < 16 ? 0 : next - i < 64 ? 1 : 2;
	}
	return count;
}

static bool flow_once(struct liveness *l, uint64_t *set)
{
	const struct insn *code = l->c->function->code;
	bool changed = false;

	for (uint32_t b = l->graph->count; b-- > 0;) {
		const struct block *block = &l->graph->blocks[b];
		uint64_t *in = &l->in[(size_t)b * l->words];

		memset(set, 0, l->words * sizeof(*set));
		for (uint32_t i = 0; i < block->next_count; i++) {
			const uint64_t *next =
				&l->in[(size_t)l->graph->next[block->first_next + i] * l->words];

			for (uint32_t w = 0; w < l->words; w++)
				set[w] |= next[w];
		}
		for (uint32_t i = block->end; i-- > block->start;)
			step_back(l, &code[i], set);
		if (memcmp(in, set, l->words * sizeof(*set)) != 0) {
			memcpy(in, set, l->words * sizeof(*set));
			changed = true;
		}
	}
	return changed;
}

static uint32_t set_weight(const struct liveness *l, const uint64_t *set)
{
	uint32_t total = 0;

	for (uint32_t w = 0; w < l->words; w++) {
		for (uint64_t rest = set[w]; rest; rest &= rest - 1)
			total += l->weight[w * 64 + (uint32_t)__builtin_ctzll(rest)];
	}
	return total;
}

/* Once the sets are known, the most that lives between two instructions. */
static uint32_t peak(struct liveness *l, uint64_t *set)
{
	const struct insn *code = l->c->function->code;
	uint32_t most = 0;

	for (uint32_t b = 0; b < l->graph->count; b++) {
		const struct block *block = &l->graph->blocks[b];

		memset(set, 0, l->words * sizeof(*set));
		for (uint32_t i = 0; i < block->next_count; i++) {
			uint32_t next = l->graph->next[block->first_next + i];

			for (uint32_t w = 0; w < l->words; w++)
				set[w] |= l->in[(size_t)next * l->words + w];
		}
		for (uint32_t i = block->end; i-- > block->start;) {
			step_back(l, &code[i], set);
			most = MAX(most, set_weight(l, set));
		}
	}
	return most;
}

uint32_t graph_pressure(struct compiler *c, const struct graph *graph)
{
	struct liveness l = {.c = c, .graph = graph};
	uint32_t registers = index_registers(&l);
	uint64_t *set;

	l.words = registers / 64 + 1;
	if ((uint64_t)l.words * 64 * graph->count > SET_BITS_MAX)
		return REGISTERS_MAX;
	l.in = compile_scratch(c, (size_t)graph->count * l.words * sizeof(*l.in));
	set = compile_scratch(c, l.words * sizeof(*set));
	while (flow_once(&l, set))
		;
	return MIN(REGISTERS_BASE + peak(&l, set), (uint32_t)REGISTERS_MAX);
}
