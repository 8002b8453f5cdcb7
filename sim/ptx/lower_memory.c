/* Loads, stores, atomics and their fences. */
#include <string.h>

#include "base/macros.h"
#include "ptx/lower.h"

enum insn_space modifier_space(struct compiler *c)
{
	static const struct {
		const char *name;
		enum insn_space space;
	} spaces[] = {
		{"global", SPACE_GLOBAL},      {"shared", SPACE_SHARED},
		{"shared::cta", SPACE_SHARED}, {"shared::cluster", SPACE_SHARED},
		{"local", SPACE_LOCAL},        {"param", SPACE_PARAM},
		{"param::entry", SPACE_PARAM}, {"param::func", SPACE_PARAM},
		{"const", SPACE_CONST},
	};

	for (size_t i = 0; i < ARRAY_SIZE(spaces); i++) {
		if (!modifier_take(c, spaces[i].name))
			continue;
		if (spaces[i].space == SPACE_PARAM && !c->function->is_entry)
			return SPACE_LOCAL;
		return spaces[i].space;
	}
	return SPACE_GENERIC;
}

/* Real memory here is coherent. */
void modifier_hints(struct compiler *c)
{
	static const char *const hints[] = {"weak", "cta", "cluster", "gpu", "sys", "ca",
					    "cg",   "cs",  "lu",      "cv",  "wb",  "wt",
					    "cop",  "nc",  "unified", "mmio"};

	for (size_t i = 0; i < ARRAY_SIZE(hints); i++)
		modifier_take(c, hints[i]);
	for (unsigned i = 0; i < c->statement.modifier_count; i++) {
		struct modifier *modifier = &c->statement.modifiers[i];

		if (modifier->length > 4 && (memcmp(modifier->text, "L1::", 4) == 0 ||
					     memcmp(modifier->text, "L2::", 4) == 0))
			modifier->used = true;
	}
}

uint32_t modifier_order(struct compiler *c)
{
	if (modifier_take(c, "volatile") || modifier_take(c, "relaxed"))
		return FLAG_POLL;
	if (modifier_take(c, "acquire"))
		return FLAG_POLL | FLAG_ACQUIRE;
	if (modifier_take(c, "release"))
		return FLAG_RELEASE;
	if (modifier_take(c, "acq_rel"))
		return FLAG_ACQUIRE | FLAG_RELEASE;
	if (modifier_take(c, "sc"))
		return FLAG_ACQUIRE | FLAG_RELEASE;
	return 0;
}

static struct address lower_symbol_address(struct compiler *c, const struct operand *operand,
					   enum insn_space space)
{
	const struct symbol *symbol = operand->symbol;
	struct address address = {.space = space, .offset = operand->offset};

	switch (symbol->kind) {
	case SYMBOL_VARIABLE:
		address.base = constant_address(c, symbol, 0, 8);
		address.space =
			symbol->variable->space == VARIABLE_SHARED ? SPACE_SHARED : SPACE_GLOBAL;
		return address;
	case SYMBOL_FRAME:
		address.space = SPACE_FRAME;
		break;
	case SYMBOL_KERNEL_PARAM:
		address.space = SPACE_PARAM;
		break;
	default:
		lower_fail(c, "an address is none");
	}
	address.base = constant_make(c, 0, 8);
	address.offset += symbol->place;
	return address;
}

struct address lower_address(struct compiler *c, const struct operand *operand,
			     enum insn_space space)
{
	struct address address = {.space = space == SPACE_CONST ? SPACE_GLOBAL : space,
				  .offset = operand->offset};
	const struct symbol *symbol = operand->symbol;

	if (operand->kind != OPERAND_ADDRESS && !operand->indexed)
		lower_fail(c, "no [address]");
	if (!symbol) {
		address.base = constant_make(c, 0, 8);
		return address;
	}
	if (symbol->kind != SYMBOL_REGISTER)
		return lower_symbol_address(c, operand, space);
	if (symbol->type == TYPE_PRED || type_size(symbol->type) < 4)
		lower_fail(c, "an address has the wrong type");
	address.base = symbol->place;
	address.flags = type_size(symbol->type) == 4 ? FLAG_ADDRESS_32 : 0;
	return address;
}

void insn_address(struct insn *insn, const struct address *address, uint32_t flags)
{
	insn->src[0] = address->base;
	insn->offset = address->offset;
	insn->detail = (uint8_t)address->space;
	insn->flags = flags | address->flags;
}

static unsigned take_vector(struct compiler *c)
{
	if (modifier_take(c, "v2"))
		return 2;
	if (modifier_take(c, "v4"))
		return 4;
	if (modifier_take(c, "v8"))
		return 8;
	return 1;
}

/* The registers of a vector, or the one: pairs of value_ref and size for insn.extra. */
static unsigned lower_elements(struct compiler *c, const struct operand *operand, enum type type,
			       unsigned count, bool store, uint32_t words[2 * ELEMENTS_MAX])
{
	const struct operand *elements = operand;
	unsigned widest = 0;

	if (count > 1 || operand->kind == OPERAND_VECTOR) {
		if (operand->kind != OPERAND_VECTOR || operand->element_count != count)
			lower_fail(c, "a vector of another length");
		elements = operand->elements;
	}
	for (unsigned i = 0; i < count; i++) {
		unsigned size;

		uint32_t *word = &words[(size_t)2 * i];

		word[0] = store ? lower_source_wide(c, &elements[i], type, &size)
				: lower_dest_wide(c, &elements[i], type, &size);
		if (elements[i].kind == OPERAND_SINK)
			size = MAX(size, 2u);
		word[1] = size;
		widest = MAX(widest, size);
	}
	return widest;
}

static void lower_load_store(struct compiler *c, int store)
{
	const struct operand *operands = c->statement.operands;
	const struct operand *place = &operands[store ? 0 : 1], *data = &operands[store ? 1 : 0];
	uint32_t flags = modifier_order(c), words[2 * ELEMENTS_MAX], extra = 0;
	enum insn_space space = modifier_space(c);
	unsigned count = take_vector(c), size, widest;
	enum type type = modifier_type(c);
	struct address address;
	struct insn *insn;
	bool plain;

	modifier_hints(c);
	operands_expect(c, 2, 3); /* the third is a cache policy */
	if (type == TYPE_PRED)
		lower_fail(c, "unsupported type");
	if (store && space == SPACE_CONST)
		lower_fail(c, "a store to constants");
	size = type_size(type);
	address = lower_address(c, place, space);
	if (store && address.space == SPACE_PARAM)
		lower_fail(c, "a store to a kernel's parameters");
	widest = lower_elements(c, data, type, count, store, words);
	plain = count == 1 && widest == size && size >= 4;
	if (!plain)
		extra = lower_extra(c, words, (size_t)2 * count);
	if (store)
		insn = lower_emit(c, !plain ? OP_st_any : size == 4 ? OP_st_b32 : OP_st_b64);
	else
		insn = lower_emit(c, !plain ? OP_ld_any : size == 4 ? OP_ld_b32 : OP_ld_b64);
	insn_address(insn, &address, flags | (type_is_signed(type) ? FLAG_SIGNED : 0));
	insn->dst = store ? 0 : words[0];
	insn->src[1] = store ? words[0] : 0;
	insn->extra = extra;
	insn->size[0] = (uint8_t)size;
	insn->size[1] = (uint8_t)count;
}

static const char *const atom_names[] = {
	[ATOM_ADD] = "add", [ATOM_MIN] = "min", [ATOM_MAX] = "max",    [ATOM_AND] = "and",
	[ATOM_OR] = "or",   [ATOM_XOR] = "xor", [ATOM_EXCH] = "exch",  [ATOM_CAS] = "cas",
	[ATOM_INC] = "inc", [ATOM_DEC] = "dec", [ATOM_DEC + 1] = NULL,
};

static bool atom_fits(int op, enum type type)
{
	bool real = type_is_float(type) || type_is_packed(type);

	switch (op) {
	case ATOM_ADD:
	case ATOM_MIN:
	case ATOM_MAX:
		return type_size(type) >= 4 || real;
	case ATOM_AND:
	case ATOM_OR:
	case ATOM_XOR:
		return type_size(type) >= 4 && !real;
	case ATOM_EXCH:
		return type_size(type) >= 4;
	case ATOM_CAS:
		return type_size(type) >= 2;
	case ATOM_INC:
	case ATOM_DEC:
		return type == TYPE_U32;
	default:
		return false;
	}
}

/* atom.global.cas.b32 d, [a], b, c; red.global.add.u32 [a], b */
static void lower_atom(struct compiler *c, int is_red)
{
	const struct operand *operands = c->statement.operands;
	uint32_t flags = modifier_order(c);
	enum insn_space space = modifier_space(c);
	int op = modifier_choose(c, atom_names);
	enum type type;
	unsigned first = is_red ? 0 : 1, sources = op == ATOM_CAS ? 2 : 1;
	struct address address;
	struct insn *insn;
	value_ref b, compare = 0, dst;

	modifier_take(c, "noftz");
	modifier_hints(c);
	type = modifier_type(c);
	if (type == TYPE_PRED || type == TYPE_TF32 || !atom_fits(op, type))
		lower_fail(c, "unsupported operation or type");
	operands_expect(c, first + 1 + sources, first + 2 + sources);
	address = lower_address(c, &operands[first], space);
	if (address.space == SPACE_PARAM || space == SPACE_CONST)
		lower_fail(c, "unsupported state space");
	b = lower_source(c, &operands[first + 1], type);
	if (op == ATOM_CAS)
		compare = lower_source(c, &operands[first + 2], type);
	dst = is_red ? 0 : lower_dest(c, &operands[0], type);
	insn = lower_emit(c, OP_atom);
	insn_address(insn, &address, flags | (uint32_t)op << ATOM_OP_SHIFT);
	insn->dst = dst;
	insn->src[1] = b;
	insn->src[2] = compare;
	insn->type = (uint8_t)type;
	insn->size[0] = (uint8_t)type_size(type);
}

static void lower_fence(struct compiler *c, int arg)
{
	static const char *const words[] = {"gl",
					    "sys",
					    "cta",
					    "gpu",
					    "cluster",
					    "sc",
					    "acq_rel",
					    "acquire",
					    "release",
					    "proxy",
					    "alias",
					    "async",
					    "generic",
					    "mbarrier_init",
					    "global",
					    "async::generic",
					    "async::global",
					    "async::shared::cta",
					    "sync_restrict::shared::cta",
					    "shared::cta",
					    "sync_restrict::shared::cluster",
					    NULL};

	while (modifier_choose(c, words) >= 0)
		;
	operands_expect(c, 0, 0);
	lower_emit(c, OP_fence);
}

/* prefetch, discard, applypriority: nothing to do, but an address must be one. */
static void lower_prefetch(struct compiler *c, int arg)
{
	static const char *const words[] = {"L1", "L2", "tensormap", NULL};
	enum insn_space space = modifier_space(c);

	while (modifier_choose(c, words) >= 0)
		;
	modifier_hints(c);
	operands_expect(c, 1, 2);
	lower_address(c, &c->statement.operands[0], space);
	lower_emit(c, OP_nop);
}

static void lower_policy(struct compiler *c, int arg)
{
	const struct operand *operands = c->statement.operands;

	for (unsigned i = 0; i < c->statement.modifier_count; i++)
		c->statement.modifiers[i].used = true;
	operands_expect(c, 1, 5);
	lower_emit1(c, OP_mov_b64, lower_dest(c, &operands[0], TYPE_B64), constant_make(c, 0, 8));
}

/* cp.async.ca.shared.global [d], [s], bytes{, bytes of s}: done at once, so the groups are empty.
 */
static void lower_cp(struct compiler *c, int arg)
{
	static const char *const groups[] = {"commit_group", "wait_group", "wait_all", NULL};
	const struct operand *operands = c->statement.operands;
	struct address to, from;
	enum insn_space first;
	struct insn *insn;
	value_ref bytes;
	uint64_t size;

	if (!modifier_take(c, "async"))
		lower_fail(c, "unsupported form");
	if (modifier_take(c, "mbarrier")) {
		lower_copy_arrive(c);
		return;
	}
	if (modifier_choose(c, groups) >= 0) {
		operands_expect(c, 0, 1);
		lower_emit(c, OP_nop);
		return;
	}
	first = modifier_space(c); /* global is looked for before shared */
	if (first != SPACE_GLOBAL || modifier_space(c) != SPACE_SHARED)
		lower_fail(c, "unsupported state space");
	modifier_hints(c);
	operands_expect(c, 3, 4);
	size = operands[2].bits;
	if (operands[2].kind != OPERAND_INT || (size != 4 && size != 8 && size != 16))
		lower_fail(c, "unsupported size");
	to = lower_address(c, &operands[0], SPACE_SHARED);
	from = lower_address(c, &operands[1], SPACE_GLOBAL);
	bytes = c->statement.operand_count == 4 ? lower_source(c, &operands[3], TYPE_U32)
						: constant_make(c, size, 4);
	if (from.offset != (int32_t)from.offset)
		lower_fail(c, "an offset out of range");
	insn = lower_emit(c, OP_copy_async);
	insn_address(insn, &to, 0);
	insn->src[1] = from.base;
	insn->src[2] = bytes;
	insn->extra = (uint32_t)(int32_t)from.offset;
	insn->type = (uint8_t)from.flags; /* flags of the source's address */
	insn->size[0] = (uint8_t)size;
}

const struct lower_rule lower_rules_memory[] = {
	{"ld", lower_load_store, 0},
	{"ldu", lower_load_store, 0},
	{"st", lower_load_store, 1},
	{"atom", lower_atom, 0},
	{"red", lower_atom, 1},
	{"membar", lower_fence, 0},
	{"fence", lower_fence, 0},
	{"prefetch", lower_prefetch, 0},
	{"prefetchu", lower_prefetch, 0},
	{"discard", lower_prefetch, 0},
	{"applypriority", lower_prefetch, 0},
	{"createpolicy", lower_policy, 0},
	{"cp", lower_cp, 0},
	{0},
};
