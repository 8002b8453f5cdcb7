/* How lanes, warps and blocks go on: branches, calls, barriers, waiting, faults. The PTX is written
 * by hand; each kernel leaves a word a thread in `out`. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/macros.h"
#include "test_ptx_support.h"

#define TEXT_BYTES 16384
#define MODULE ".version 8.0\n.target sm_90\n.address_size 64\n"
/* A kernel whose %r0 is the thread's number in the grid and %o the address of its word. */
#define KERNEL                                                                            \
	".visible .entry k(.param .u64 out)\n{\n"                                         \
	".reg .pred %p<8>;\n.reg .b32 %r<32>;\n.reg .b64 %d<16>;\n.reg .b64 %o, %base;\n" \
	"mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;\n"             \
	"mad.lo.u32 %r0, %r1, %r2, %r3; ld.param.u64 %base, [out];\n"                     \
	"mad.wide.u32 %o, %r0, 4, %base;\n"
#define END "\nst.global.u32 [%o], %r9;\nret;\n}\n"

static struct device device;
static uint64_t out;
static uint32_t *words;

static int setup(void **state)
{
	device_open(&device);
	out = device_alloc(&device, 65536);
	words = device_host(&device, out);
	return 0;
}

static int teardown(void **state)
{
	device_close(&device);
	return 0;
}

/* `before` stands in front of the kernel, `body` leaves %r9. */
static int run_body(const char *before, const char *body, uint32_t blocks, uint32_t threads)
{
	char text[TEXT_BYTES];

	snprintf(text, sizeof(text), "%s%s%s%s%s", MODULE, before, KERNEL, body, END);
	device_load(&device, text);
	return device_run(&device, "k", blocks, threads, 1, out);
}

#define must_run_body(...) assert_int_equal(run_body(__VA_ARGS__), 0)

/* --- lanes */

static void test_nested_branches(void **state)
{
	must_run_body("",
		      "mov.u32 %r9, 0; and.b32 %r4, %r0, 1; setp.eq.u32 %p0, %r4, 0;\n"
		      "@%p0 bra EVEN;\n"
		      "and.b32 %r4, %r0, 2; setp.eq.u32 %p1, %r4, 0; @%p1 bra ODD1;\n"
		      "add.u32 %r9, %r9, 3; bra.uni ODDEND;\n"
		      "ODD1: add.u32 %r9, %r9, 1;\n"
		      "ODDEND: add.u32 %r9, %r9, 10; bra END;\n"
		      "EVEN: add.u32 %r9, %r9, 20;\n"
		      "END: activemask.b32 %r5; setp.ne.u32 %p2, %r5, 0xffffffff;\n"
		      "@%p2 add.u32 %r9, %r9, 1000;",
		      1, 32);
	for (uint32_t i = 0; i < 32; i++)
		assert_int_equal(words[i], i % 2 == 0 ? 20 : i % 4 == 1 ? 11 : 13);
}

static void test_loops_join(void **state)
{
	/* Lane i turns i times; all are together again behind the loop, and in a loop around it. */
	must_run_body("",
		      "mov.u32 %r9, 0; mov.u32 %r5, 0;\n"
		      "OUTER: mov.u32 %r4, 0;\n"
		      "INNER: setp.ge.u32 %p0, %r4, %r3; @%p0 bra DONE;\n"
		      "add.u32 %r9, %r9, 1; add.u32 %r4, %r4, 1; bra INNER;\n"
		      "DONE: vote.sync.ballot.b32 %r6, 1, -1; setp.ne.u32 %p1, %r6, 0xffffffff;\n"
		      "@%p1 add.u32 %r9, %r9, 100000;\n"
		      "add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 3; @%p2 bra OUTER;",
		      1, 32);
	for (uint32_t i = 0; i < 32; i++)
		assert_int_equal(words[i], 3 * i);
}

static void test_guarded_exit(void **state)
{
	must_run_body("", "setp.gt.u32 %p0, %r0, 40; @%p0 exit; mov.u32 %r9, 7; bar.sync 0;", 1,
		      70);
	for (uint32_t i = 0; i < 70; i++)
		assert_int_equal(words[i], i > 40 ? 0 : 7);
}

static void test_switch(void **state)
{
	must_run_body("",
		      "and.b32 %r4, %r0, 3; ts: .branchtargets L0, L1, L2, L0;\n"
		      "brx.idx %r4, ts;\n"
		      "L0: mov.u32 %r9, 5; bra JOIN;\nL1: mov.u32 %r9, 6; bra JOIN;\n"
		      "L2: mov.u32 %r9, 7;\nJOIN: activemask.b32 %r5; add.u32 %r9, %r9, %r5;",
		      1, 32);
	for (uint32_t i = 0; i < 32; i++)
		assert_int_equal(words[i], UINT32_MAX + (i % 4 == 1 ? 6 : i % 4 == 2 ? 7 : 5));
}

static void test_shuffles(void **state)
{
	must_run_body(
		"",
		"shfl.sync.down.b32 %r4|%p0, %r3, 1, 31, -1; selp.u32 %r5, 100, 0, %p0;\n"
		"shfl.sync.up.b32 %r6, %r3, 2, 0, -1; shfl.sync.bfly.b32 %r7, %r3, 16, 31, -1;\n"
		/* segments of 8 lanes: idx 3 of each */
		"shfl.sync.idx.b32 %r8, %r3, 3, 0x181f, -1;\n"
		"mad.lo.u32 %r9, %r4, 1000, %r5; mad.lo.u32 %r9, %r6, 1000000, %r9;\n"
		"add.u32 %r9, %r9, %r7; xor.b32 %r9, %r9, %r8;",
		1, 32);
	for (uint32_t i = 0; i < 32; i++) {
		uint32_t down = i < 31 ? i + 1 : i, up = i >= 2 ? i - 2 : i;

		assert_int_equal(words[i],
				 (up * 1000000 + down * 1000 + (i < 31 ? 100 : 0) + (i ^ 16)) ^
					 (i / 8 * 8 + 3));
	}
}

static void test_votes(void **state)
{
	must_run_body("",
		      "setp.lt.u32 %p0, %r3, 5; vote.sync.ballot.b32 %r9, %p0, -1;\n"
		      "vote.sync.any.pred %p1, %p0, -1; vote.sync.all.pred %p2, %p0, -1;\n"
		      "@!%p1 add.u32 %r9, %r9, 1000; @%p2 add.u32 %r9, %r9, 2000;\n"
		      "and.b32 %r4, %r3, 3; match.any.sync.b32 %r5, %r4, -1;\n"
		      "add.u32 %r9, %r9, %r5; redux.sync.add.s32 %r6, %r3, -1;\n"
		      "add.u32 %r9, %r9, %r6; match.all.sync.b32 %r7|%p3, %r4, -1;\n"
		      "@%p3 add.u32 %r9, %r9, 5000; mov.u32 %r8, %lanemask_lt;\n"
		      "popc.b32 %r8, %r8; add.u32 %r9, %r9, %r8;",
		      1, 32);
	for (uint32_t i = 0; i < 32; i++)
		assert_int_equal(words[i], 31 + (0x11111111u << i % 4) + 496 + i);
}

/* Parts of 8 lanes, each with its own members: what a part decides is not another's. */
static void test_votes_of_parts(void **state)
{
	must_run_body(
		"",
		"and.b32 %r4, %r3, 24; shl.b32 %r5, 255, %r4; setp.lt.u32 %p0, %r3, 12;\n"
		"vote.sync.ballot.b32 %r9, %p0, %r5; vote.sync.any.pred %p1, %p0, %r5;\n"
		"vote.sync.all.pred %p2, %p0, %r5; vote.sync.uni.pred %p3, %p0, %r5;\n"
		"@%p1 add.u32 %r9, %r9, 100000; @%p2 add.u32 %r9, %r9, 200000;\n"
		"@%p3 add.u32 %r9, %r9, 400000; redux.sync.add.u32 %r6, %r3, %r5;\n"
		"add.u32 %r9, %r9, %r6; and.b32 %r7, %r3, 1; match.any.sync.b32 %r8, %r7, %r5;\n"
		"xor.b32 %r9, %r9, %r8; match.all.sync.b32 %r8|%p1, %r4, %r5;\n"
		"@%p1 add.u32 %r9, %r9, %r8;",
		1, 32);
	for (uint32_t i = 0; i < 32; i++) {
		uint32_t part = i / 8, members = 255u << part * 8;
		uint32_t votes = members & 0xfff;
		uint32_t sum = votes + (votes ? 100000 : 0) + (votes == members ? 200000 : 0) +
			       (!votes || votes == members ? 400000 : 0) + part * 64 + 28;

		assert_int_equal(words[i], (sum ^ (members & 0x55555555u << i % 2)) + members);
	}
}

static void test_lock_in_a_warp(void **state)
{
	/* Lanes spin for a lock that another lane of theirs holds and only gives back behind the
	 * loop: works on hardware since Volta. */
	must_run_body(".global .u32 lock;\n.global .u32 count;\n",
		      "SPIN: atom.global.cas.b32 %r4, [lock], 0, 1; setp.ne.u32 %p0, %r4, 0;\n"
		      "@%p0 bra SPIN;\n"
		      "ld.volatile.global.u32 %r9, [count]; add.u32 %r5, %r9, 1;\n"
		      "st.volatile.global.u32 [count], %r5; atom.global.exch.b32 %r4, [lock], 0;",
		      1, 64);
	for (uint32_t i = 0; i < 64; i++) {
		uint32_t holders = 0;

		for (uint32_t k = 0; k < 64; k++)
			holders += words[k] == i;
		assert_int_equal(holders, 1);
	}
}

/* How cooperative_groups has a whole grid meet: by a word of the workspace that the driver names in
 * %envreg1 and 2, whose upper bit changes when all are there. */
static void test_grid_sync(void **state)
{
	const char *body =
		"mov.u32 %r4, %envreg2; cvt.u64.u32 %d0, %r4; mov.u32 %r4, %envreg1; cvt.u64.u32 "
		"%d1, %r4;\n"
		"bfi.b64 %d0, %d1, %d0, 32, 32; setp.ne.s64 %p0, %d0, 0; @%p0 bra known; trap; "
		"known:\n"
		"st.global.u32 [%o], %r0; mov.u32 %r7, %nctaid.x; bar.sync 0; setp.ne.u32 %p1, "
		"%r3, 0;\n"
		"@%p1 bra met; sub.u32 %r5, 0x80000001, %r7; setp.eq.u32 %p2, %r1, 0;\n"
		"selp.b32 %r5, %r5, 1, %p2; atom.add.release.gpu.u32 %r6, [%d0+4], %r5;\n"
		"again: ld.acquire.gpu.u32 %r8, [%d0+4]; xor.b32 %r8, %r8, %r6; setp.gt.s32 %p3, "
		"%r8, -1;\n"
		"@%p3 bra again; met: bar.sync 0;\n"
		/* The value that the next block's first thread has written. */
		"add.u32 %r4, %r1, 1; rem.u32 %r4, %r4, %r7; mul.lo.u32 %r4, %r4, %r2;\n"
		"mad.wide.u32 %d2, %r4, 4, %base; ld.global.u32 %r9, [%d2];\n"
		"add.u64 %o, %o, 4096;";

	device.launch.resident_blocks = 6;
	device.launch.cooperative = true;
	must_run_body("", body, 6, 40);
	for (uint32_t i = 0; i < 240; i++)
		assert_int_equal(words[1024 + i], (i / 40 + 1) % 6 * 40);
	device.launch.cooperative = false;
	assert_int_equal(run_body("", body, 6, 40), -EFAULT);
	assert_int_equal(device.result.fault, PTX_FAULT_TRAP);
}

/* --- mbarrier */

#define MBARRIER ".shared .align 8 .b64 bar; .shared .b32 sum;\n"
#define MBARRIER_INIT_BY_0(count)                                                              \
	"setp.ne.u32 %p7, %r3, 0; @%p7 bra made; mbarrier.init.shared.b64 [bar], " count ";\n" \
	"made: bar.sync 0;\n"

/* Arrivals, then what each waits for; also where the lanes of a warp go different ways, and through
 * a generic address. */
static void test_mbarrier_phases(void **state)
{
	must_run_body(
		MBARRIER,
		MBARRIER_INIT_BY_0(
			"%r2") "mov.u32 %r10, 0;\n"
			       "mov.u64 %d3, bar; cvta.shared.u64 %d3, %d3;\n"
			       "round: atom.shared.add.u32 %r11, [sum], 1;\n"
			       "setp.lt.u32 %p1, %r3, 20; @%p1 bra first;\n"
			       "mbarrier.arrive.release.cta.b64 %d0, [%d3]; bra again;\n"
			       "first: mbarrier.arrive.shared::cta.b64 %d0, [bar], 1;\n"
			       "again: mbarrier.test_wait.shared.b64 %p2, [bar], %d0; @!%p2 bra "
			       "again;\n"
			       "and.b32 %r12, %r10, 1;\n"
			       "mbarrier.try_wait.parity.acquire.cta.shared.b64 %p3, [bar], %r12, "
			       "1000;\n"
			       "@!%p3 trap;\n"
			       "ld.shared.u32 %r9, [sum]; bar.sync 0;\n"
			       "add.u32 %r10, %r10, 1; setp.lt.u32 %p4, %r10, 3; @%p4 bra round;",
		2, 100);
	for (uint32_t i = 0; i < 200; i++)
		assert_int_equal(words[i], 300);
}

/* The answers of a state, dropped arrivals, bytes that are waited for: one thread, bit by bit. */
static void test_mbarrier_counts(void **state)
{
	must_run_body(
		MBARRIER,
		"mov.u32 %r9, 0; mbarrier.init.shared.b64 [bar], 5;\n"
		/* 5, 3 are to come; not over. */
		"mbarrier.arrive.noComplete.release.cta.shared.b64 %d0, [bar], 2;\n"
		"mbarrier.pending_count.b64 %r10, %d0; mad.lo.u32 %r9, %r9, 10, %r10;\n"
		"mbarrier.arrive_drop.shared.b64 %d1, [bar];\n"
		"mbarrier.pending_count.b64 %r10, %d1; mad.lo.u32 %r9, %r9, 10, %r10;\n"
		"mbarrier.test_wait.shared.b64 %p1, [bar], %d0; selp.u32 %r10, 1, 0, %p1;\n"
		"mad.lo.u32 %r9, %r9, 10, %r10;\n"
		/* The last two are there, the bytes are not. */
		"mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 64;\n"
		"mbarrier.arrive.expect_tx.shared.b64 _, [bar], 16; mbarrier.arrive.shared.b64 _, "
		"[bar];\n"
		"mbarrier.test_wait.parity.shared.b64 %p1, [bar], 0; selp.u32 %r10, 1, 0, %p1;\n"
		"mad.lo.u32 %r9, %r9, 10, %r10;\n"
		"mbarrier.complete_tx.shared.b64 [bar], 80;\n"
		"mbarrier.test_wait.parity.shared.b64 %p1, [bar], 0; selp.u32 %r10, 1, 0, %p1;\n"
		"mad.lo.u32 %r9, %r9, 10, %r10;\n"
		/* The next one waits for one less. */
		"mbarrier.arrive.shared.b64 %d0, [bar], 4;\n"
		"mbarrier.pending_count.b64 %r10, %d0; mad.lo.u32 %r9, %r9, 10, %r10;\n"
		"mbarrier.test_wait.shared.b64 %p1, [bar], %d0; selp.u32 %r10, 1, 0, %p1;\n"
		"mad.lo.u32 %r9, %r9, 10, %r10;\n"
		"mbarrier.inval.shared.b64 [bar];",
		1, 1);
	assert_int_equal(words[0], 5300141);
}

/* Copies count as one more arrival, unless they are among those expected. */
static void test_mbarrier_copies(void **state)
{
	must_run_body(
		MBARRIER ".shared .align 16 .b32 got[64];\n",
		MBARRIER_INIT_BY_0("128") "mov.u32 %r4, got; mad.lo.u32 %r4, %r3, 4, %r4; "
					  "st.global.u32 [%o], %r0;\n"
					  "cp.async.ca.shared.global [%r4], [%o], 4;\n"
					  "cp.async.mbarrier.arrive.shared.b64 [bar];\n"
					  "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [bar];\n"
					  "mbarrier.arrive.shared.b64 %d0, [bar];\n"
					  "again: mbarrier.try_wait.shared.b64 %p1, [bar], %d0; "
					  "@!%p1 bra again;\n"
					  "xor.b32 %r5, %r3, 63; mov.u32 %r4, got; mad.lo.u32 %r4, "
					  "%r5, 4, %r4;\n"
					  "ld.shared.u32 %r9, [%r4];",
		1, 64);
	for (uint32_t i = 0; i < 64; i++)
		assert_int_equal(words[i], 63 - i);
}

static void test_mbarrier_errors(void **state)
{
	static const struct {
		const char *body;
		enum ptx_fault_kind fault;
	} cases[] = {
		{"mbarrier.init.shared.b64 [bar], 0;", PTX_FAULT_TRAP},
		{"mbarrier.init.shared.b64 [bar], 1048576;", PTX_FAULT_TRAP},
		{"mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.shared.b64 _, [bar], 2;",
		 PTX_FAULT_TRAP},
		{"mbarrier.init.shared.b64 [bar+4], 1;", PTX_FAULT_MISALIGNED_ADDRESS},
		{"mbarrier.init.b64 [%o], 1;", PTX_FAULT_ILLEGAL_ADDRESS},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(run_body(MBARRIER, cases[i].body, 1, 1), -EFAULT);
		assert_int_equal(device.result.fault, cases[i].fault);
	}
}

/* --- calls */

#define FIBONACCI                                                                             \
	".func (.param .u32 f) fib(.param .u32 n)\n{\n.reg .pred %p; .reg .u32 %a, %b, %n;\n" \
	"ld.param.u32 %n, [n]; setp.lt.u32 %p, %n, 2; mov.u32 %a, %n; @%p bra OUT;\n"         \
	"sub.u32 %b, %n, 1;\n{ .param .u32 x; .param .u32 y; st.param.u32 [x], %b;\n"         \
	"call.uni (y), fib, (x); ld.param.u32 %a, [y]; }\n"                                   \
	"sub.u32 %b, %n, 2;\n{ .param .u32 x; .param .u32 y; st.param.u32 [x], %b;\n"         \
	"call.uni (y), fib, (x); ld.param.u32 %b, [y]; }\nadd.u32 %a, %a, %b;\n"              \
	"OUT: st.param.u32 [f], %a; ret;\n}\n"

static void test_recursion(void **state)
{
	static const uint32_t fib[] = {0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89};

	must_run_body(FIBONACCI,
		      "rem.u32 %r4, %r0, 12;\n{ .param .u32 x; .param .u32 y;\n"
		      "st.param.u32 [x], %r4; call (y), fib, (x); ld.param.u32 %r9, [y]; }",
		      1, 48);
	for (uint32_t i = 0; i < 48; i++)
		assert_int_equal(words[i], fib[i % 12]);
}

static void test_stack_overflow(void **state)
{
	assert_int_equal(run_body(".func deep()\n{ call deep; ret; }\n", "call deep;", 1, 1),
			 -EFAULT);
	assert_int_equal(device.result.fault, PTX_FAULT_STACK);
	assert_string_equal(device.result.fault_function, "deep");
}

static void test_pointers_to_functions(void **state)
{
	const char *before =
		".func (.reg .u32 y) twice(.reg .u32 x)\n{ add.u32 y, x, x; ret; }\n"
		".func (.reg .u32 y) square(.reg .u32 x)\n{ mul.lo.u32 y, x, x; ret; }\n"
		".func nothing()\n{ ret; }\n"
		".global .u64 table[3] = {twice, square, nothing};\n";
	const char *body = "and.b32 %r4, %r0, 1; mad.wide.u32 %d0, %r4, 8, table;\n"
			   "ld.global.u64 %d1, [%d0];\n"
			   "proto: .callprototype (.reg .u32 _) _ (.reg .u32 _);\n"
			   "call (%r9), %d1, (%r0), proto;";

	must_run_body(before, body, 1, 64);
	for (uint32_t i = 0; i < 64; i++)
		assert_int_equal(words[i], i % 2 ? i * i : 2 * i);
	assert_int_equal(run_body(before,
				  "ld.global.u64 %d1, [table+16];\n"
				  "proto: .callprototype (.reg .u32 _) _ (.reg .u32 _);\n"
				  "call (%r9), %d1, (%r0), proto;",
				  1, 1),
			 -EFAULT);
	assert_int_equal(device.result.fault, PTX_FAULT_ILLEGAL_CALL);
}

/* A pointer from memory may be all that a kernel knows of functions: its calls need a stack too. */
static void test_pointers_from_memory(void **state)
{
	device_load(&device, MODULE
		    ".func (.reg .u32 y) deep(.reg .u32 x)\n{ .local .b8 room[500];\n"
		    "add.u32 y, x, 7; ret; }\n"
		    ".visible .entry give(.param .u64 p)\n{ .reg .u64 %d<2>;\n"
		    "ld.param.u64 %d0, [p]; mov.u64 %d1, deep; st.global.u64 [%d0], %d1; ret; }\n"
		    ".visible .entry take(.param .u64 p)\n{ .reg .u64 %d<2>; .reg .u32 %r;\n"
		    "ld.param.u64 %d0, [p]; ld.global.u64 %d1, [%d0];\n"
		    "proto: .callprototype (.reg .u32 _) _ (.reg .u32 _);\n"
		    "call (%r), %d1, (5), proto; st.global.u32 [%d0], %r; ret; }\n");
	device_must_run(&device, "give", 1, 1, 1, out);
	device_must_run(&device, "take", 1, 1, 1, out);
	assert_int_equal(words[0], 12);
}

static void test_printf(void **state)
{
	must_run_body(".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n"
		      /* "%d|%5.2f|%s|%c|%llx|%%|%-4u|\n" */
		      ".global .b8 fmt[] = {37,100,124,37,53,46,50,102,124,37,115,124,37,99,124,37,"
		      "108,108,120,124,37,37,124,37,45,52,117,124,10,0};\n"
		      ".global .b8 str[] = {104,105,0};\n",
		      ".local .align 8 .b8 args[48];\nmov.u64 %d0, args; cvta.local.u64 %d1, %d0;\n"
		      "st.local.u32 [%d0], -5; st.local.f64 [%d0+8], 0d400921FB54442D18;\n"
		      "cvta.global.u64 %d2, str; st.local.u64 [%d0+16], %d2;\n"
		      "st.local.u32 [%d0+24], 65; st.u64 [%d1+32], 0xabcdef0123;\n"
		      "st.local.u32 [%d0+40], 7; cvta.global.u64 %d3, fmt;\n"
		      "{ .param .b64 f; .param .b64 a; .param .b32 r; st.param.b64 [f], %d3;\n"
		      "st.param.b64 [a], %d1; call.uni (r), vprintf, (f, a);\n"
		      "ld.param.b32 %r9, [r]; }",
		      1, 1);
	assert_string_equal(device.printed, "-5| 3.14|hi|A|abcdef0123|%|7   |\n");
	assert_int_equal(words[0], 6);
}

/* --- blocks */

static void test_barriers(void **state)
{
	/* Warps 0 and 1 meet at barrier 1, 2 and 3 produce and consume by arrive and sync; then all
	 * count those whose predicate holds. */
	must_run_body("",
		      ".shared .u32 s[4];\nshr.u32 %r4, %r3, 5; mad.lo.u32 %r5, %r4, 4, s;\n"
		      "setp.gt.u32 %p0, %r4, 1; @%p0 bra HIGH;\n"
		      "st.shared.u32 [%r5], %r4; bar.sync 1, 64; xor.b32 %r6, %r5, 4;\n"
		      "ld.shared.u32 %r9, [%r6]; bra ALL;\n"
		      "HIGH: setp.eq.u32 %p1, %r4, 3; @%p1 bra WAIT;\n"
		      "st.shared.u32 [%r5], 77; membar.cta; bar.arrive 2, 64; mov.u32 %r9, 0;\n"
		      "bra ALL;\nWAIT: bar.sync 2, 64; ld.shared.u32 %r9, [s+8];\n"
		      "ALL: setp.lt.u32 %p2, %r3, 50; bar.red.popc.u32 %r7, 0, %p2;\n"
		      "mad.lo.u32 %r9, %r9, 1000, %r7; bar.red.and.pred %p3, 0, %p2;\n"
		      "bar.red.or.pred %p4, 0, %p2; @%p3 mov.u32 %r9, 1; @!%p4 mov.u32 %r9, 2;",
		      2, 128);
	for (uint32_t i = 0; i < 256; i++) {
		static const uint32_t got[] = {1, 0, 0, 77};

		assert_int_equal(words[i], got[i % 128 / 32] * 1000 + 50);
	}
}

static void test_barrier_in_both_arms(void **state)
{
	/* Half of each warp meets the barrier in one place, half in the other, and both see what
	 * the other half and the other warp wrote before. */
	must_run_body("",
		      ".shared .u32 s[64];\nmad.lo.u32 %r4, %r3, 4, s; st.shared.u32 [%r4], %r3;\n"
		      "and.b32 %r5, %r3, 16; setp.eq.u32 %p0, %r5, 0; @%p0 bra LOW;\n"
		      "bar.sync 0; bra END;\nLOW: bar.sync 0;\nEND: xor.b32 %r6, %r3, 48;\n"
		      "mad.lo.u32 %r7, %r6, 4, s; ld.shared.u32 %r9, [%r7];",
		      3, 64);
	for (uint32_t i = 0; i < 192; i++)
		assert_int_equal(words[i], (i % 64) ^ 48);
}

#define GRID_BARRIER                                                                   \
	"setp.ne.u32 %p0, %r3, 0; @%p0 bra WAITED;\n"                                  \
	"mov.u32 %r4, %nctaid.x; atom.global.add.u32 %r5, [arrived], 1;\n"             \
	"POLL: ld.acquire.gpu.global.u32 %r6, [arrived]; setp.lt.u32 %p1, %r6, %r4;\n" \
	"@%p1 bra POLL;\nWAITED: bar.sync 0; ld.global.u32 %r9, [arrived];"

static void test_grid_barrier(void **state)
{
	device.launch.resident_blocks = 50;
	must_run_body(".global .u32 arrived;\n", GRID_BARRIER, 50, 64);
	for (uint32_t i = 0; i < 50 * 64; i++)
		assert_int_equal(words[i], 50);
	assert_int_equal(device.pauses, 0);
}

static void test_blocks_wait_for_later_ones(void **state)
{
	must_run_body(".global .u32 arrived;\n", GRID_BARRIER, 6, 32);
	for (uint32_t i = 0; i < 6 * 32; i++)
		assert_int_equal(words[i], 6);
}

static void test_waiting_pauses(void **state)
{
	/* 50 ms of the device's clock, which only pauses move; met to 20 us. */
	must_run_body("",
		      "mov.u64 %d0, %globaltimer; add.u64 %d1, %d0, 50000000;\n"
		      "LOOP: mov.u64 %d2, %globaltimer; setp.lt.u64 %p0, %d2, %d1; @%p0 bra LOOP;\n"
		      "sub.u64 %d2, %d2, %d0; cvt.u32.u64 %r9, %d2;",
		      1, 64);
	assert_true(words[63] >= 50000000 && words[63] <= 50020000);
	assert_true(device.pauses >= 2500 && device.pauses <= 4000);
	device.pauses = 0;
	must_run_body("", "nanosleep.u32 1000000; nanosleep.u32 2000000; mov.u32 %r9, 1;", 1, 32);
	assert_int_equal(device.pauses, 2);
}

static int stop_at_once(void *user, uint64_t count)
{
	return 1;
}

static void test_checkpoint_cancels(void **state)
{
	device.callbacks.checkpoint = stop_at_once;
	assert_int_equal(run_body("", "L: add.u32 %r9, %r9, 1; bra L;", 1, 32), -ECANCELED);
	assert_true(device.result.warp_instructions >= 65536);
	assert_true(device.result.warp_instructions < 200000);
}

static void test_barrier_deadlock(void **state)
{
	assert_int_equal(run_body("", "bar.sync 0, 64;", 1, 32), -EFAULT);
	assert_int_equal(device.result.fault, PTX_FAULT_DEADLOCK);
}

/* --- memory */

static void test_spaces(void **state)
{
	must_run_body(
		".global .u32 g = 1000;\n.const .u32 c[2] = {0, 200};\n",
		".shared .align 8 .b8 s[256];\n.local .align 8 .b8 l[8];\n"
		"mad.lo.u32 %r4, %r3, 4, s; st.shared.u32 [%r4], %r3;\n"
		"mov.u64 %d0, l; st.local.u32 [%d0+4], 30; cvta.local.u64 %d0, %d0;\n"
		"ld.u32 %r5, [%d0+4]; cvt.u64.u32 %d1, %r4; cvta.shared.u64 %d1, %d1;\n"
		"ld.u32 %r6, [%d1]; ld.const.u32 %r7, [c+4]; mov.u64 %d2, g;\n"
		"cvta.global.u64 %d2, %d2; ld.u32 %r8, [%d2];\n"
		"add.u32 %r9, %r5, %r6; add.u32 %r9, %r9, %r7; add.u32 %r9, %r9, %r8;\n"
		"isspacep.shared %p0, %d1; isspacep.local %p1, %d0; isspacep.global %p2, %d2;\n"
		"isspacep.shared %p3, %d0; mov.u64 %d3, c; isspacep.const %p4, %d3;\n"
		"@!%p0 mov.u32 %r9, 1; @!%p1 mov.u32 %r9, 2; @!%p2 mov.u32 %r9, 3;\n"
		"@%p3 mov.u32 %r9, 4; @!%p4 mov.u32 %r9, 5; cvta.to.shared.u64 %d4, %d1;\n"
		"cvt.u32.u64 %r10, %d4; setp.ne.u32 %p5, %r10, %r4; @%p5 mov.u32 %r9, 6;",
		1, 64);
	for (uint32_t i = 0; i < 64; i++)
		assert_int_equal(words[i], 1230 + i);
}

static void test_faults(void **state)
{
	static const struct {
		const char *body;
		enum ptx_fault_kind fault;
		uint64_t address;
	} cases[] = {
		{"ld.global.u32 %r9, [16];", PTX_FAULT_ILLEGAL_ADDRESS, 16},
		{"mov.u64 %d0, 0; st.u32 [%d0], 1;", PTX_FAULT_ILLEGAL_ADDRESS, 0},
		{"ld.global.u32 %r9, [%base+2];", PTX_FAULT_MISALIGNED_ADDRESS, 2},
		{".shared .u32 s; ld.shared.u32 %r9, [s+4];", PTX_FAULT_ILLEGAL_ADDRESS, 4},
		{".local .u32 s[4]; ld.local.u32 %r9, [s+16];", PTX_FAULT_ILLEGAL_ADDRESS, 16},
		{"ld.param.u64 %d0, [out+8];", PTX_FAULT_ILLEGAL_ADDRESS, 8},
		{"atom.global.add.u32 %r9, [%base+1], 1;", PTX_FAULT_MISALIGNED_ADDRESS, 1},
		{"trap;", PTX_FAULT_TRAP, 0},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint64_t base = cases[i].fault == PTX_FAULT_MISALIGNED_ADDRESS ? out : 0;

		char body[256];

		snprintf(body, sizeof(body),
			 "setp.ne.u32 %%p7, %%r0, 70; @%%p7 bra FINE; %s FINE:", cases[i].body);
		assert_int_equal(run_body("", body, 2, 64), -EFAULT);
		assert_int_equal(device.result.fault, cases[i].fault);
		assert_int_equal(device.result.fault_address, base + cases[i].address);
		assert_int_equal(device.result.fault_block[0], 1);
		assert_int_equal(device.result.fault_thread[0], 6);
		assert_string_equal(device.result.fault_function, "k");
		assert_true(device.result.fault_line > 5);
	}
}

static void test_dimensions(void **state)
{
	device.launch.grid[1] = 3;
	device.launch.block[1] = 2;
	device.launch.block[2] = 2;
	must_run_body("",
		      "mov.u32 %r4, %ctaid.y; mov.u32 %r5, %tid.y; mov.u32 %r6, %tid.z;\n"
		      "mov.u32 %r7, %nctaid.y; mov.u32 %r8, %ntid.z;\n"
		      "mad.lo.u32 %r4, %r4, %r8, %r6; mad.lo.u32 %r4, %r4, %r8, %r5;\n"
		      "mad.lo.u32 %r4, %r4, 10, %r0; mad.wide.u32 %o, %r4, 4, %base;\n"
		      "mad.lo.u32 %r9, %r4, %r7, 1;",
		      2, 5);
	for (uint32_t i = 0; i < 120; i++)
		assert_int_equal(words[i], 3 * i + 1);
	device.launch.block[1] = 1024;
	assert_int_equal(device_run(&device, "k", 1, 2, 1, out), -EINVAL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_nested_branches),
		TEST(test_loops_join),
		TEST(test_guarded_exit),
		TEST(test_switch),
		TEST(test_shuffles),
		TEST(test_votes),
		TEST(test_votes_of_parts),
		TEST(test_lock_in_a_warp),
		TEST(test_recursion),
		TEST(test_stack_overflow),
		TEST(test_pointers_to_functions),
		TEST(test_pointers_from_memory),
		TEST(test_grid_sync),
		TEST(test_mbarrier_phases),
		TEST(test_mbarrier_counts),
		TEST(test_mbarrier_copies),
		TEST(test_mbarrier_errors),
		TEST(test_printf),
		TEST(test_barriers),
		TEST(test_barrier_in_both_arms),
		TEST(test_grid_barrier),
		TEST(test_blocks_wait_for_later_ones),
		TEST(test_waiting_pauses),
		TEST(test_checkpoint_cancels),
		TEST(test_barrier_deadlock),
		TEST(test_spaces),
		TEST(test_faults),
		TEST(test_dimensions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
