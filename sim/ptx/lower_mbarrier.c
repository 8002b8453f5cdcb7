/* mbarrier: barriers that lie in shared memory and that threads arrive at without waiting. */
#include "ptx/lower.h"

static void take_size(struct compiler *c)
{
	if (modifier_type(c) != TYPE_B64)
		lower_fail(c, "unsupported type");
}

/* Those that take a place and not more than one value besides, `value` is that one's operand or 0;
 * the result is operand 0 where the place is operand 1. */
static void emit_action(struct compiler *c, enum mbarrier_action action, unsigned place,
			value_ref dst, value_ref value, enum insn_space space)
{
	struct address address = lower_address(c, &c->statement.operands[place], space);
	struct insn *insn;

	if (address.space != SPACE_SHARED && address.space != SPACE_GENERIC)
		lower_fail(c, "unsupported state space");
	insn = lower_emit2(c, OP_mbarrier, dst, 0, value);
	insn_address(insn, &address, 0);
	insn->type = (uint8_t)action;
}

/* Words that say when others see it: they do at once. */
static enum insn_space take_place(struct compiler *c)
{
	enum insn_space space;

	modifier_order(c);
	space = modifier_space(c);
	modifier_hints(c);
	take_size(c);
	return space;
}

/* mbarrier.init.shared.b64 [a], count; inval [a]; expect_tx and complete_tx [a], bytes */
static void lower_change(struct compiler *c)
{
	static const char *const forms[] = {[MBARRIER_INIT] = "init",
					    [MBARRIER_INVAL] = "inval",
					    [MBARRIER_EXPECT_TX] = "expect_tx",
					    [MBARRIER_COMPLETE_TX] = "complete_tx",
					    [MBARRIER_COMPLETE_TX + 1] = NULL};
	int action = modifier_choose(c, forms);
	unsigned count = action == MBARRIER_INVAL ? 1 : 2;
	enum insn_space space;
	value_ref value = 0;

	if (action < 0)
		lower_fail(c, "unsupported form");
	space = take_place(c);
	operands_expect(c, count, count);
	if (count == 2)
		value = lower_source(c, &c->statement.operands[1], TYPE_U32);
	emit_action(c, (enum mbarrier_action)action, 0, 0, value, space);
}

/* mbarrier.arrive.shared.b64 state, [a]{, count}; arrive.expect_tx state, [a], bytes */
static void lower_arrive(struct compiler *c, bool drops)
{
	const struct operand *operands = c->statement.operands;
	bool expects = modifier_take(c, "expect_tx"), counts;
	enum insn_space space;
	value_ref value;

	counts = modifier_take(c, "noComplete") || expects;
	space = take_place(c);
	operands_expect(c, counts ? 3 : 2, 3);
	value = c->statement.operand_count == 3 ? lower_source(c, &operands[2], TYPE_U32)
						: constant_make(c, 1, 4);
	emit_action(c,
		    expects ? drops ? MBARRIER_DROP_TX : MBARRIER_ARRIVE_TX
		    : drops ? MBARRIER_DROP
			    : MBARRIER_ARRIVE,
		    1, lower_dest(c, &operands[0], TYPE_B64), value, space);
}

/* mbarrier.test_wait{.parity}.shared.b64 p, [a], state; try_wait may have a limit of time, too:
 * it never waits here, as it need not. */
static void lower_wait(struct compiler *c, bool tries)
{
	const struct operand *operands = c->statement.operands;
	bool parity = modifier_take(c, "parity");
	enum insn_space space = take_place(c);
	value_ref value;

	operands_expect(c, 3, tries ? 4 : 3);
	if (c->statement.operand_count == 4)
		lower_source(c, &operands[3], TYPE_U32);
	value = lower_source(c, &operands[2], parity ? TYPE_U32 : TYPE_B64);
	emit_action(c, parity ? MBARRIER_TEST_PARITY : MBARRIER_TEST, 1,
		    lower_predicate_dest(c, &operands[0]), value, space);
}

static void lower_pending(struct compiler *c)
{
	const struct operand *operands = c->statement.operands;
	value_ref state;

	take_size(c);
	operands_expect(c, 2, 2);
	state = lower_source(c, &operands[1], TYPE_B64);
	lower_emit1(c, OP_mbarrier_pending, lower_dest(c, &operands[0], TYPE_B32), state);
}

static void lower_mbarrier(struct compiler *c, int arg)
{
	/* arrive.expect_tx is an arrive. */
	if (modifier_take(c, "arrive"))
		lower_arrive(c, false);
	else if (modifier_take(c, "arrive_drop"))
		lower_arrive(c, true);
	else if (modifier_take(c, "test_wait"))
		lower_wait(c, false);
	else if (modifier_take(c, "try_wait"))
		lower_wait(c, true);
	else if (modifier_take(c, "pending_count"))
		lower_pending(c);
	else
		lower_change(c);
}

/* cp.async.mbarrier.arrive{.noinc}.shared.b64 [a]: when the thread's copies are done, which they
 * are. Without .noinc it is an arrival more that the phase waits for, and that arrival. */
void lower_copy_arrive(struct compiler *c)
{
	enum insn_space space;
	bool plain;

	if (!modifier_take(c, "arrive"))
		lower_fail(c, "unsupported form");
	plain = modifier_take(c, "noinc");
	space = take_place(c);
	operands_expect(c, 1, 1);
	emit_action(c, plain ? MBARRIER_ARRIVE : MBARRIER_COPIED, 0, 0, constant_make(c, 1, 4),
		    space);
}

const struct lower_rule lower_rules_mbarrier[] = {
	{"mbarrier", lower_mbarrier, 0},
	{0},
};
