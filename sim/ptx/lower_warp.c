/* Instructions that the lanes of a warp do together, and special registers. */
#include <string.h>

#include "base/macros.h"
#include "ptx/lower.h"

static const struct operand *operand(struct compiler *c, unsigned index)
{
	return &c->statement.operands[index];
}

/* The lanes that a .sync form names, which may be others for each lane; else all that are on. */
static value_ref lower_members(struct compiler *c, bool sync, unsigned index)
{
	return sync ? lower_source(c, operand(c, index), TYPE_B32) : VALUE_NONE;
}

/* shfl.sync.down.b32 d|p, a, b, c, lanes */
static void lower_shfl(struct compiler *c, int arg)
{
	static const char *const modes[] = {"up", "down", "bfly", "idx", NULL};
	bool sync = modifier_take(c, "sync");
	int mode = modifier_choose(c, modes);
	struct insn *insn;
	value_ref a, b, d, dst, pair;

	if (mode < 0 || type_size(modifier_type(c)) != 4)
		lower_fail(c, "unsupported form");
	operands_expect(c, sync ? 5 : 4, sync ? 5 : 4);
	a = lower_source(c, operand(c, 1), TYPE_B32);
	b = lower_source(c, operand(c, 2), TYPE_B32);
	d = lower_source(c, operand(c, 3), TYPE_B32);
	pair = lower_pair_dest(c, operand(c, 0));
	dst = lower_dest(c, operand(c, 0), TYPE_B32);
	insn = lower_emit3(c, OP_shfl, dst, a, b, d);
	insn->detail = (uint8_t)mode;
	insn->extra = pair;
}

static void lower_vote(struct compiler *c, int arg)
{
	static const char *const modes[] = {"all", "any", "uni", "ballot", NULL};
	bool sync = modifier_take(c, "sync");
	int mode = modifier_choose(c, modes);
	enum type type = modifier_type(c);
	value_ref a, members;

	if (mode < 0 || type != (mode == 3 ? TYPE_B32 : TYPE_PRED))
		lower_fail(c, "unsupported form");
	operands_expect(c, sync ? 3 : 2, sync ? 3 : 2);
	a = lower_predicate(c, operand(c, 1));
	members = lower_members(c, sync, 2);
	lower_emit2(c, OP_vote_all + mode, lower_dest(c, operand(c, 0), type), a, members);
}

static void lower_match(struct compiler *c, int arg)
{
	static const char *const modes[] = {"any", "all", NULL};
	bool sync = modifier_take(c, "sync");
	int mode = modifier_choose(c, modes);
	enum type type = modifier_type(c);
	value_ref a, members, pair;
	struct insn *insn;

	if (!sync || mode < 0 || (type != TYPE_B32 && type != TYPE_B64))
		lower_fail(c, "unsupported form");
	operands_expect(c, 3, 3);
	a = lower_source(c, operand(c, 1), type);
	members = lower_members(c, true, 2);
	pair = lower_pair_dest(c, operand(c, 0));
	insn = lower_emit2(c, OP_match_any + mode, lower_dest(c, operand(c, 0), TYPE_B32), a,
			   members);
	insn->extra = pair;
	insn->size[1] = (uint8_t)type_size(type);
}

static void lower_redux(struct compiler *c, int arg)
{
	static const char *const ops[] = {[REDUCE_POPC] = "",   [REDUCE_AND] = "and",
					  [REDUCE_OR] = "or",   [REDUCE_XOR] = "xor",
					  [REDUCE_ADD] = "add", [REDUCE_MIN] = "min",
					  [REDUCE_MAX] = "max", NULL};
	bool sync = modifier_take(c, "sync");
	int op = modifier_choose(c, ops);
	enum type type = modifier_type(c);
	struct insn *insn;
	value_ref a, members;

	if (!sync || op < 0 || type_size(type) != 4 || index_b3(c, type) != 1)
		lower_fail(c, "unsupported form");
	operands_expect(c, 3, 3);
	a = lower_source(c, operand(c, 1), type);
	members = lower_members(c, true, 2);
	insn = lower_emit2(c, OP_redux, lower_dest(c, operand(c, 0), type), a, members);
	insn->detail = (uint8_t)op;
	insn->type = (uint8_t)type;
}

static void lower_activemask(struct compiler *c, int arg)
{
	if (modifier_type(c) != TYPE_B32)
		lower_fail(c, "unsupported type");
	operands_expect(c, 1, 1);
	lower_emit1(c, OP_activemask, lower_dest(c, operand(c, 0), TYPE_B32), 0);
}

static void lower_elect(struct compiler *c, int arg)
{
	value_ref members, pair;
	struct insn *insn;

	modifier_take(c, "sync");
	operands_expect(c, 2, 2);
	members = lower_members(c, true, 1);
	pair = lower_pair_dest(c, operand(c, 0));
	insn = lower_emit2(c, OP_elect, lower_dest(c, operand(c, 0), TYPE_B32), VALUE_NONE,
			   members);
	insn->extra = pair;
}

static const struct {
	const char *name;
	enum special special;
} specials[] = {
	{"%tid.x", SPECIAL_TID_X},
	{"%tid.y", SPECIAL_TID_Y},
	{"%tid.z", SPECIAL_TID_Z},
	{"%ntid.x", SPECIAL_NTID_X},
	{"%ntid.y", SPECIAL_NTID_Y},
	{"%ntid.z", SPECIAL_NTID_Z},
	{"%ctaid.x", SPECIAL_CTAID_X},
	{"%ctaid.y", SPECIAL_CTAID_Y},
	{"%ctaid.z", SPECIAL_CTAID_Z},
	{"%nctaid.x", SPECIAL_NCTAID_X},
	{"%nctaid.y", SPECIAL_NCTAID_Y},
	{"%nctaid.z", SPECIAL_NCTAID_Z},
	{"%laneid", SPECIAL_LANEID},
	{"%warpid", SPECIAL_WARPID},
	{"%nwarpid", SPECIAL_NWARPID},
	{"%smid", SPECIAL_SMID},
	{"%nsmid", SPECIAL_NSMID},
	{"%gridid", SPECIAL_GRIDID},
	{"%clock", SPECIAL_CLOCK},
	{"%clock_hi", SPECIAL_CLOCK_HI},
	{"%clock64", SPECIAL_CLOCK64},
	{"%globaltimer", SPECIAL_TIMER},
	{"%globaltimer_lo", SPECIAL_TIMER_LO},
	{"%globaltimer_hi", SPECIAL_TIMER_HI},
	{"%lanemask_eq", SPECIAL_LANEMASK_EQ},
	{"%lanemask_le", SPECIAL_LANEMASK_LE},
	{"%lanemask_lt", SPECIAL_LANEMASK_LT},
	{"%lanemask_ge", SPECIAL_LANEMASK_GE},
	{"%lanemask_gt", SPECIAL_LANEMASK_GT},
	{"%dynamic_smem_size", SPECIAL_DYNAMIC_SHARED},
	{"%total_smem_size", SPECIAL_TOTAL_SHARED},
	{"%aggr_smem_size", SPECIAL_TOTAL_SHARED},
	/* The registers that the vendor's driver passes to cooperative_groups; the others are zero.
	 */
	{"%envreg1", SPECIAL_WORKSPACE_HI},
	{"%envreg2", SPECIAL_WORKSPACE_LO},
	/* A cluster is one block. */
	{"%clusterid.x", SPECIAL_CTAID_X},
	{"%clusterid.y", SPECIAL_CTAID_Y},
	{"%clusterid.z", SPECIAL_CTAID_Z},
	{"%nclusterid.x", SPECIAL_NCTAID_X},
	{"%nclusterid.y", SPECIAL_NCTAID_Y},
	{"%nclusterid.z", SPECIAL_NCTAID_Z},
	{"%cluster_ctaid.x", SPECIAL_ZERO},
	{"%cluster_ctaid.y", SPECIAL_ZERO},
	{"%cluster_ctaid.z", SPECIAL_ZERO},
	{"%cluster_ctarank", SPECIAL_ZERO},
	{"%cluster_nctaid.x", SPECIAL_ONE},
	{"%cluster_nctaid.y", SPECIAL_ONE},
	{"%cluster_nctaid.z", SPECIAL_ONE},
	{"%cluster_nctarank", SPECIAL_ONE},
};

int special_find(const char *text, size_t length)
{
	for (size_t i = 0; i < ARRAY_SIZE(specials); i++) {
		if (strlen(specials[i].name) == length &&
		    memcmp(specials[i].name, text, length) == 0)
			return (int)specials[i].special;
	}
	/* %envreg0 to %envreg31 are zero unless a driver says otherwise. */
	if (length > 7 && length < 10 && memcmp(text, "%envreg", 7) == 0)
		return SPECIAL_ZERO;
	return -1;
}

unsigned special_size(int special)
{
	return special == SPECIAL_CLOCK64 || special == SPECIAL_TIMER || special == SPECIAL_GRIDID
		       ? 8
		       : 4;
}

const struct lower_rule lower_rules_warp[] = {
	{"shfl", lower_shfl, 0},
	{"vote", lower_vote, 0},
	{"match", lower_match, 0},
	{"redux", lower_redux, 0},
	{"activemask", lower_activemask, 0},
	{"elect", lower_elect, 0},
	{0},
};
