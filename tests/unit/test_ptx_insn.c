/* Single instructions on edge values, against results computed here by other means or taken from
 * the ISA's tables. A case runs one thread: operands come as constants in registers, so that no
 * lane sees another's. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/macros.h"
#include "test_ptx_support.h"

#define TEXT_BYTES 65536
#define SIGN32 0x80000000ULL
#define SIGN64 0x8000000000000000ULL
#define ONE_F32 0x3f800000ULL
#define NAN_F32 0x7fffffffULL
#define INF_F32 0x7f800000ULL
#define MAX_F32 0x7f7fffffULL
#define TINY_F32 0x00000001ULL
#define ONE_F64 0x3ff0000000000000ULL
#define INF_F64 0x7ff0000000000000ULL

/* d = insn(a, b, c): widths in bits of the registers named %d %a %b %c; 1: a predicate. */
struct insn_case {
	const char *text; /* with %d, %a, %b, %c for operands */
	uint64_t a, b, c, expected;
	unsigned char d_bits, a_bits, b_bits, c_bits;
};

#define CASE32(text, a, b, c, expected)                 \
	{                                               \
		text, a, b, c, expected, 32, 32, 32, 32 \
	}
#define CASE64(text, a, b, c, expected)                 \
	{                                               \
		text, a, b, c, expected, 64, 64, 64, 64 \
	}
#define CASE16(text, a, b, c, expected)                 \
	{                                               \
		text, a, b, c, expected, 16, 16, 16, 16 \
	}
/* 64-bit a, 32-bit b and c. */
#define CASE64_32(text, a, b, c, expected)              \
	{                                               \
		text, a, b, c, expected, 64, 64, 32, 32 \
	}

static const struct insn_case integer_cases[] = {
	CASE32("add.s32 %d, %a, %b", 0x7fffffff, 1, 0, SIGN32),
	CASE64("add.u64 %d, %a, %b", UINT64_MAX, 2, 0, 1),
	CASE16("add.u16 %d, %a, %b", 0xffff, 3, 0, 2),
	CASE32("add.sat.s32 %d, %a, %b", 0x7fffffff, 1, 0, 0x7fffffff),
	CASE32("sub.sat.s32 %d, %a, %b", SIGN32, 1, 0, SIGN32),
	CASE32("sub.s32 %d, %a, %b", 0, 1, 0, 0xffffffff),
	CASE16("sub.s16 %d, %a, %b", 0, 1, 0, 0xffff),
	CASE32("mul.lo.s32 %d, %a, %b", 0x10001, 0x10001, 0, 0x20001),
	CASE32("mul.hi.u32 %d, %a, %b", 0xffffffff, 0xffffffff, 0, 0xfffffffe),
	CASE32("mul.hi.s32 %d, %a, %b", 0xffffffff, 0xffffffff, 0, 0),
	CASE32("mul.hi.s32 %d, %a, %b", SIGN32, 2, 0, 0xffffffff),
	CASE64("mul.hi.u64 %d, %a, %b", UINT64_MAX, UINT64_MAX, 0, UINT64_MAX - 1),
	CASE64("mul.hi.s64 %d, %a, %b", SIGN64, SIGN64, 0, 1ULL << 62),
	CASE16("mul.lo.u16 %d, %a, %b", 0xffff, 0xffff, 0, 1),
	CASE16("mul.hi.s16 %d, %a, %b", 0x8000, 0x8000, 0, 0x4000),
	{"mul.wide.s32 %d, %a, %b", SIGN32, SIGN32, 0, 1ULL << 62, 64, 32, 32, 32},
	{"mul.wide.u32 %d, %a, %b", 0xffffffff, 0xffffffff, 0, 0xfffffffe00000001, 64, 32, 32, 32},
	{"mul.wide.s16 %d, %a, %b", 0xffff, 2, 0, 0xfffffffe, 32, 16, 16, 16},
	{"mad.wide.s32 %d, %a, %b, %c", 0xffffffff, 3, 5, 2, 64, 32, 32, 64},
	{"mad.wide.u16 %d, %a, %b, %c", 0xffff, 0xffff, 1, 0xfffe0002, 32, 16, 16, 32},
	CASE32("mad.lo.u32 %d, %a, %b, %c", 7, 8, 9, 65),
	CASE32("mad.hi.u32 %d, %a, %b, %c", SIGN32, 2, 9, 10),
	CASE32("mad.hi.s32 %d, %a, %b, %c", SIGN32, 2, 9, 8),
	CASE32("mad.hi.sat.s32 %d, %a, %b, %c", SIGN32, SIGN32, 0x7fffffff, 0x7fffffff),
	CASE32("mul24.lo.u32 %d, %a, %b", 0xff000002, 3, 0, 6),
	CASE32("mul24.lo.s32 %d, %a, %b", 0x00ffffff, 3, 0, 0xfffffffd),
	CASE32("mul24.hi.u32 %d, %a, %b", 0xffffff, 0xffffff, 0, 0xfffffe00),
	CASE32("mad24.lo.u32 %d, %a, %b, %c", 5, 6, 7, 37),
	CASE32("div.s32 %d, %a, %b", SIGN32, 0xffffffff, 0, SIGN32),
	CASE32("div.s32 %d, %a, %b", (uint32_t)-7, 2, 0, (uint32_t)-3),
	CASE32("div.u32 %d, %a, %b", 7, 0, 0, 0xffffffff),
	CASE64("div.s64 %d, %a, %b", SIGN64, UINT64_MAX, 0, SIGN64),
	CASE64("div.u64 %d, %a, %b", UINT64_MAX, 10, 0, UINT64_MAX / 10),
	CASE32("rem.s32 %d, %a, %b", (uint32_t)-7, 2, 0, (uint32_t)-1),
	CASE32("rem.s32 %d, %a, %b", SIGN32, 0xffffffff, 0, 0),
	CASE32("rem.u32 %d, %a, %b", 7, 0, 0, 7),
	CASE16("rem.u16 %d, %a, %b", 0xffff, 10, 0, 5),
	CASE32("abs.s32 %d, %a", SIGN32, 0, 0, SIGN32),
	CASE32("abs.s32 %d, %a", (uint32_t)-5, 0, 0, 5),
	CASE64("neg.s64 %d, %a", 1, 0, 0, UINT64_MAX),
	CASE16("neg.s16 %d, %a", 0x8000, 0, 0, 0x8000),
	CASE32("min.s32 %d, %a, %b", 0xffffffff, 1, 0, 0xffffffff),
	CASE32("min.u32 %d, %a, %b", 0xffffffff, 1, 0, 1),
	CASE32("max.s32 %d, %a, %b", 0xffffffff, 1, 0, 1),
	CASE64("max.u64 %d, %a, %b", SIGN64, 1, 0, SIGN64),
	CASE32("sad.s32 %d, %a, %b, %c", 0xffffffff, 4, 10, 15),
	CASE32("sad.u32 %d, %a, %b, %c", 0xffffffff, 4, 10, 5),
	CASE32("and.b32 %d, %a, %b", 0xff00ff00, 0x0ff00ff0, 0, 0x0f000f00),
	CASE64("or.b64 %d, %a, %b", 1, SIGN64, 0, SIGN64 | 1),
	CASE16("xor.b16 %d, %a, %b", 0xffff, 0x00ff, 0, 0xff00),
	CASE32("not.b32 %d, %a", 0, 0, 0, 0xffffffff),
	CASE32("cnot.b32 %d, %a", 0, 0, 0, 1),
	CASE64("cnot.b64 %d, %a", 9, 0, 0, 0),
	CASE32("shl.b32 %d, %a, %b", 1, 31, 0, SIGN32),
	CASE32("shl.b32 %d, %a, %b", 1, 32, 0, 0),
	CASE32("shl.b32 %d, %a, %b", 1, 0xffffffff, 0, 0),
	CASE64_32("shl.b64 %d, %a, %b", 1, 63, 0, SIGN64),
	CASE64_32("shl.b64 %d, %a, %b", 1, 64, 0, 0),
	{"shl.b16 %d, %a, %b", 0xffff, 15, 0, 0x8000, 16, 16, 32, 32},
	{"shr.s16 %d, %a, %b", 0x8000, 99, 0, 0xffff, 16, 16, 32, 32},
	CASE32("shr.u32 %d, %a, %b", SIGN32, 31, 0, 1),
	CASE32("shr.u32 %d, %a, %b", SIGN32, 32, 0, 0),
	CASE32("shr.s32 %d, %a, %b", SIGN32, 40, 0, 0xffffffff),
	CASE64_32("shr.s64 %d, %a, %b", SIGN64, 1, 0, 0xc000000000000000),
	CASE32("shf.l.wrap.b32 %d, %a, %b, %c", 0x80000001, 0x1, 33, 3),
	CASE32("shf.l.clamp.b32 %d, %a, %b, %c", 0x80000001, 0x1, 33, 0x80000001),
	CASE32("shf.r.wrap.b32 %d, %a, %b, %c", 0x80000001, 0x1, 1, 0xc0000000),
	CASE32("shf.r.clamp.b32 %d, %a, %b, %c", 0x80000001, 0x7, 99, 7),
	CASE32("bfe.u32 %d, %a, %b, %c", 0xabcd1234, 8, 8, 0x12),
	CASE32("bfe.s32 %d, %a, %b, %c", 0x0000f000, 12, 4, 0xffffffff),
	CASE32("bfe.u32 %d, %a, %b, %c", 0xffffffff, 28, 8, 0xf),
	CASE32("bfe.s32 %d, %a, %b, %c", SIGN32, 40, 8, 0xffffffff),
	CASE32("bfe.u32 %d, %a, %b, %c", 0xffffffff, 0, 0, 0),
	CASE32("bfe.u32 %d, %a, %b, %c", 0x12345678, 0, 32, 0x12345678),
	CASE64_32("bfe.s64 %d, %a, %b, %c", SIGN64, 63, 1, UINT64_MAX),
	CASE64_32("bfe.u64 %d, %a, %b, %c", UINT64_MAX, 60, 255, 0xf),
	CASE32("brev.b32 %d, %a", 1, 0, 0, SIGN32),
	CASE64("brev.b64 %d, %a", 2, 0, 0, SIGN64 >> 1),
	CASE32("clz.b32 %d, %a", 0, 0, 0, 32),
	CASE32("clz.b32 %d, %a", 1, 0, 0, 31),
	{"clz.b64 %d, %a", 0, 0, 0, 64, 32, 64, 64, 64},
	{"popc.b64 %d, %a", UINT64_MAX, 0, 0, 64, 32, 64, 64, 64},
	CASE32("popc.b32 %d, %a", 0xf0f0f0f0, 0, 0, 16),
	CASE32("bfind.u32 %d, %a", 0, 0, 0, 0xffffffff),
	CASE32("bfind.u32 %d, %a", 0x00010000, 0, 0, 16),
	CASE32("bfind.s32 %d, %a", 0xffffffff, 0, 0, 0xffffffff),
	CASE32("bfind.s32 %d, %a", 0xfffffffe, 0, 0, 0),
	CASE32("bfind.shiftamt.u32 %d, %a", 0x00010000, 0, 0, 15),
	{"bfind.u64 %d, %a", SIGN64, 0, 0, 63, 32, 64, 64, 64},
	CASE32("lop3.b32 %d, %a, %b, %c, 0x96", 0xf0f0f0f0, 0xcccccccc, 0xaaaaaaaa, 0x96969696),
	CASE32("lop3.b32 %d, %a, %b, %c, 0xe8", 0xf0f0f0f0, 0xcccccccc, 0xaaaaaaaa, 0xe8e8e8e8),
	CASE32("prmt.b32 %d, %a, %b, %c", 0x33221100, 0x77665544, 0x7351, 0x77335511),
	CASE32("prmt.b32 %d, %a, %b, %c", 0x00000080, 0, 0x8888, 0xffffffff),
	CASE32("prmt.b32.f4e %d, %a, %b, %c", 0x33221100, 0x77665544, 1, 0x44332211),
	CASE32("prmt.b32.b4e %d, %a, %b, %c", 0x33221100, 0x77665544, 1, 0x66770011),
	CASE32("prmt.b32.rc8 %d, %a, %b, %c", 0x33221100, 0x77665544, 2, 0x22222222),
	CASE32("prmt.b32.ecl %d, %a, %b, %c", 0x33221100, 0x77665544, 2, 0x33222222),
	CASE32("prmt.b32.ecr %d, %a, %b, %c", 0x33221100, 0x77665544, 1, 0x11111100),
	CASE32("prmt.b32.rc16 %d, %a, %b, %c", 0x33221100, 0x77665544, 1, 0x33223322),
	CASE32("dp4a.u32.u32 %d, %a, %b, %c", 0x01020304, 0x05060708, 10, 80),
	CASE32("dp4a.s32.s32 %d, %a, %b, %c", 0xff02ff04, 0x01010101, 0, 4),
	CASE32("dp4a.u32.s32 %d, %a, %b, %c", 0xff, 0xff, 0, (uint32_t)-255),
	CASE32("dp2a.lo.s32.u32 %d, %a, %b, %c", 0xffff0002, 0x00000305, 1, 8),
	CASE32("dp2a.hi.u32.u32 %d, %a, %b, %c", 0x00010002, 0x03050000, 0, 13),
	CASE32("szext.wrap.s32 %d, %a, %b", 0xff, 8, 0, 0xffffffff),
	CASE32("szext.clamp.u32 %d, %a, %b", 0xffffffff, 99, 0, 0xffffffff),
	CASE32("bmsk.clamp.b32 %d, %a, %b", 4, 8, 0, 0xff0),
	CASE32("bmsk.clamp.b32 %d, %a, %b", 4, 99, 0, 0xfffffff0),
	CASE32("fns.b32 %d, %a, %b, %c", 0b10110, 0, 2, 2),
	CASE32("fns.b32 %d, %a, %b, %c", 0b10110, 4, (uint32_t)-3, 1),
	CASE32("fns.b32 %d, %a, %b, %c", 0b10110, 0, 0, 0xffffffff),
	{"selp.b32 %d, %a, %b, %c", 5, 6, 1, 5, 32, 32, 32, 1},
	{"selp.b64 %d, %a, %b, %c", 5, 6, 0, 6, 64, 64, 64, 1},
	CASE32("slct.u32.s32 %d, %a, %b, %c", 5, 6, (uint32_t)-1, 6),
	CASE32("slct.u32.f32 %d, %a, %b, %c", 5, 6, SIGN32, 5),
	CASE32("slct.u32.f32 %d, %a, %b, %c", 5, 6, NAN_F32, 6),
	CASE32("set.gt.u32.s32 %d, %a, %b", 5, (uint32_t)-6, 0, 0xffffffff),
	CASE32("set.lt.f32.u32 %d, %a, %b", 5, (uint32_t)-6, 0, ONE_F32),
	{"setp.lt.s32 %d, %a, %b", SIGN32, 0, 0, 1, 1, 32, 32, 32},
	{"setp.lo.u32 %d, %a, %b", SIGN32, 0, 0, 0, 1, 32, 32, 32},
	{"setp.hs.u64 %d, %a, %b", SIGN64, 0, 0, 1, 1, 64, 64, 64},
	{"setp.ne.and.s32 %d, %a, %b, %c", 1, 2, 0, 0, 1, 32, 32, 1},
	{"setp.ne.or.s32 %d, %a, %b, !%c", 1, 1, 0, 1, 1, 32, 32, 1},
	{"setp.eq.xor.b16 %d, %a, %b, %c", 1, 1, 1, 0, 1, 16, 16, 1},
	{"not.pred %d, %a", 1, 0, 0, 0, 1, 1, 1, 1},
	{"xor.pred %d, %a, %b", 1, 0, 0, 1, 1, 1, 1, 1},
};

static const struct insn_case float_cases[] = {
	CASE32("add.f32 %d, %a, %b", ONE_F32, TINY_F32, 0, ONE_F32),
	CASE32("add.rp.f32 %d, %a, %b", ONE_F32, TINY_F32, 0, ONE_F32 + 1),
	CASE32("add.rm.f32 %d, %a, %b", ONE_F32, SIGN32 | TINY_F32, 0, ONE_F32 - 1),
	CASE32("add.rz.f32 %d, %a, %b", ONE_F32, SIGN32 | TINY_F32, 0, ONE_F32 - 1),
	CASE32("add.f32 %d, %a, %b", INF_F32, INF_F32 | SIGN32, 0, NAN_F32),
	CASE32("add.ftz.f32 %d, %a, %b", TINY_F32, TINY_F32, 0, 0),
	CASE32("add.f32 %d, %a, %b", TINY_F32, TINY_F32, 0, 2),
	CASE32("add.sat.f32 %d, %a, %b", ONE_F32, ONE_F32, 0, ONE_F32),
	CASE32("add.sat.f32 %d, %a, %b", NAN_F32, ONE_F32, 0, 0),
	CASE32("sub.f32 %d, %a, %b", 0, 0, 0, 0),
	CASE32("mul.f32 %d, %a, %b", MAX_F32, MAX_F32, 0, INF_F32),
	CASE32("mul.rz.f32 %d, %a, %b", MAX_F32, MAX_F32, 0, MAX_F32),
	CASE32("mul.f32 %d, %a, %b", INF_F32, 0, 0, NAN_F32),
	CASE32("mul.ftz.f32 %d, %a, %b", 0x00800000, 0x3f000000, 0, 0),
	/* (1 + 2^-23)^2 - (1 + 2^-22) is 2^-46 with one rounding, 0 with two. */
	CASE32("fma.rn.f32 %d, %a, %b, %c", 0x3f800001, 0x3f800001, 0xbf800002, 0x28800000),
	CASE32("mad.rn.f32 %d, %a, %b, %c", 0x3f800001, 0x3f800001, 0xbf800002, 0x28800000),
	CASE64("fma.rn.f64 %d, %a, %b, %c", ONE_F64 + 1, ONE_F64 + 1, SIGN64 | (ONE_F64 + 2),
	       0x3970000000000000),
	CASE32("div.rn.f32 %d, %a, %b", ONE_F32, 0x40400000, 0, 0x3eaaaaab),
	CASE32("div.rz.f32 %d, %a, %b", ONE_F32, 0x40400000, 0, 0x3eaaaaaa),
	CASE32("div.approx.f32 %d, %a, %b", ONE_F32, 0x40000000, 0, 0x3f000000),
	CASE32("div.full.ftz.f32 %d, %a, %b", ONE_F32, 0, 0, INF_F32),
	CASE64("div.rn.f64 %d, %a, %b", ONE_F64, 0, 0, INF_F64),
	CASE64("div.rp.f64 %d, %a, %b", ONE_F64, 0x4008000000000000, 0, 0x3fd5555555555556),
	CASE32("rcp.rn.f32 %d, %a", 0x40000000, 0, 0, 0x3f000000),
	CASE32("rcp.approx.ftz.f32 %d, %a", TINY_F32 | SIGN32, 0, 0, INF_F32 | SIGN32),
	CASE32("sqrt.rn.f32 %d, %a", 0x40800000, 0, 0, 0x40000000),
	CASE32("sqrt.rn.f32 %d, %a", 0xbf800000, 0, 0, NAN_F32),
	CASE64("sqrt.rn.f64 %d, %a", 0x4000000000000000, 0, 0, 0x3ff6a09e667f3bcd),
	CASE32("rsqrt.approx.f32 %d, %a", 0x40800000, 0, 0, 0x3f000000),
	CASE32("rsqrt.approx.f32 %d, %a", 0, 0, 0, INF_F32),
	CASE32("sin.approx.f32 %d, %a", 0, 0, 0, 0),
	CASE32("cos.approx.f32 %d, %a", 0, 0, 0, ONE_F32),
	CASE32("lg2.approx.f32 %d, %a", 0x41000000, 0, 0, 0x40400000),
	CASE32("ex2.approx.f32 %d, %a", 0x40400000, 0, 0, 0x41000000),
	CASE32("tanh.approx.f32 %d, %a", INF_F32, 0, 0, ONE_F32),
	CASE32("neg.f32 %d, %a", 0, 0, 0, SIGN32),
	CASE32("abs.f32 %d, %a", 0xff800000, 0, 0, INF_F32),
	CASE64("neg.f64 %d, %a", ONE_F64, 0, 0, ONE_F64 | SIGN64),
	CASE32("copysign.f32 %d, %a, %b", SIGN32, ONE_F32, 0, ONE_F32 | SIGN32),
	CASE32("min.f32 %d, %a, %b", NAN_F32, ONE_F32, 0, ONE_F32),
	CASE32("min.NaN.f32 %d, %a, %b", NAN_F32, ONE_F32, 0, NAN_F32),
	CASE32("max.f32 %d, %a, %b", NAN_F32, NAN_F32, 0, NAN_F32),
	CASE32("min.f32 %d, %a, %b", 0, SIGN32, 0, SIGN32),
	CASE32("max.f32 %d, %a, %b", SIGN32, 0, 0, 0),
	CASE32("max.xorsign.abs.f32 %d, %a, %b", 0xc0000000, ONE_F32, 0, 0xc0000000),
	CASE64("max.f64 %d, %a, %b", ONE_F64, INF_F64, 0, INF_F64),
	{"testp.subnormal.f32 %d, %a", TINY_F32, 0, 0, 1, 1, 32, 32, 32},
	{"testp.finite.f32 %d, %a", INF_F32, 0, 0, 0, 1, 32, 32, 32},
	{"testp.notanumber.f64 %d, %a", INF_F64 + 1, 0, 0, 1, 1, 64, 64, 64},
	{"setp.lt.f32 %d, %a, %b", NAN_F32, 0, 0, 0, 1, 32, 32, 32},
	{"setp.ltu.f32 %d, %a, %b", NAN_F32, 0, 0, 1, 1, 32, 32, 32},
	{"setp.ne.f32 %d, %a, %b", NAN_F32, 0, 0, 0, 1, 32, 32, 32},
	{"setp.neu.f32 %d, %a, %b", NAN_F32, 0, 0, 1, 1, 32, 32, 32},
	{"setp.equ.f32 %d, %a, %b", NAN_F32, 0, 0, 1, 1, 32, 32, 32},
	{"setp.nan.f32 %d, %a, %b", NAN_F32, 0, 0, 1, 1, 32, 32, 32},
	{"setp.num.f64 %d, %a, %b", 0, INF_F64, 0, 1, 1, 64, 64, 64},
	{"setp.eq.f32 %d, %a, %b", 0, SIGN32, 0, 1, 1, 32, 32, 32},
	{"setp.gt.ftz.f32 %d, %a, %b", TINY_F32, 0, 0, 0, 1, 32, 32, 32},
	{"setp.geu.f64 %d, %a, %b", ONE_F64, INF_F64, 0, 0, 1, 64, 64, 64},
	CASE32("set.eq.f32.f32 %d, %a, %b", 0, SIGN32, 0, ONE_F32),
	/* halves: 1 = 3c00, 65504 = 7bff, smallest = 0001 */
	CASE16("add.f16 %d, %a, %b", 0x3c00, 0x3c00, 0, 0x4000),
	CASE16("add.f16 %d, %a, %b", 0x7bff, 0x7bff, 0, 0x7c00),
	CASE16("add.f16 %d, %a, %b", 0x6800, 0x3c00, 0, 0x6800), /* 2048 + 1: a tie, to even */
	CASE16("mul.f16 %d, %a, %b", 0x0001, 0x3800, 0, 0x0000),
	CASE16("fma.rn.f16 %d, %a, %b, %c", 0x4000, 0x4000, 0x3c00, 0x4500),
	CASE16("min.f16 %d, %a, %b", 0x7e00, 0x3c00, 0, 0x3c00),
	CASE16("max.NaN.f16 %d, %a, %b", 0x7e00, 0x3c00, 0, 0x7fff),
	CASE16("neg.f16 %d, %a", 0x3c00, 0, 0, 0xbc00),
	CASE32("add.f16x2 %d, %a, %b", 0x3c004000, 0x40003c00, 0, 0x42004200),
	CASE32("fma.rn.f16x2 %d, %a, %b, %c", 0x40003c00, 0x3c003c00, 0x3c000000, 0x42003c00),
	CASE16("fma.rn.bf16 %d, %a, %b, %c", 0x4000, 0x4000, 0x3f80, 0x40a0),
	CASE32("max.bf16x2 %d, %a, %b", 0x3f80c000, 0x40003f80, 0, 0x40003f80),
	{"setp.lt.f16 %d, %a, %b", 0x3c00, 0x4000, 0, 1, 1, 16, 16, 16},
	{"setp.leu.bf16 %d, %a, %b", 0x7fc0, 0x4000, 0, 1, 1, 16, 16, 16},
};

#define CVT(text, from, to, a, expected)                  \
	{                                                 \
		text, a, 0, 0, expected, to, from, 32, 32 \
	}

static const struct insn_case cvt_cases[] = {
	CVT("cvt.u32.u16 %d, %a", 16, 32, 0xffff, 0xffff),
	CVT("cvt.s32.s16 %d, %a", 16, 32, 0xffff, 0xffffffff),
	CVT("cvt.s64.s32 %d, %a", 32, 64, SIGN32, 0xffffffff80000000),
	CVT("cvt.u64.u32 %d, %a", 32, 64, SIGN32, SIGN32),
	CVT("cvt.u32.u64 %d, %a", 64, 32, 0x123456789abcdef0, 0x9abcdef0),
	CVT("cvt.u16.u32 %d, %a", 32, 16, 0x12345678, 0x5678),
	CVT("cvt.s8.s32 %d, %a", 32, 16, 0x180, 0xff80),
	CVT("cvt.u8.u32 %d, %a", 32, 32, 0xfff, 0xff),
	CVT("cvt.s32.s8 %d, %a", 32, 32, 0x80, 0xffffff80),
	CVT("cvt.u32.s8 %d, %a", 32, 64, 0x80, 0xffffff80),
	CVT("cvt.s16.s8 %d, %a", 16, 32, 0x80, 0xffffff80),
	CVT("cvt.sat.u8.s32 %d, %a", 32, 32, (uint32_t)-5, 0),
	CVT("cvt.sat.u8.s32 %d, %a", 32, 32, 300, 255),
	CVT("cvt.sat.s16.s32 %d, %a", 32, 32, 70000, 32767),
	CVT("cvt.sat.s32.u32 %d, %a", 32, 32, 0xffffffff, 0x7fffffff),
	CVT("cvt.rn.f32.s32 %d, %a", 32, 32, 0x7fffffff, 0x4f000000),
	CVT("cvt.rz.f32.s32 %d, %a", 32, 32, 0x7fffffff, 0x4effffff),
	CVT("cvt.rn.f32.u32 %d, %a", 32, 32, 0xffffffff, 0x4f800000),
	CVT("cvt.rn.f32.u64 %d, %a", 64, 32, UINT64_MAX, 0x5f800000),
	CVT("cvt.rm.f32.s64 %d, %a", 64, 32, 0x7fffffffffffffff, 0x5effffff),
	CVT("cvt.rn.f64.s64 %d, %a", 64, 64, UINT64_MAX, ONE_F64 | SIGN64),
	CVT("cvt.rn.f64.u64 %d, %a", 64, 64, UINT64_MAX, 0x43f0000000000000),
	CVT("cvt.rn.f64.s32 %d, %a", 32, 64, (uint32_t)-1, ONE_F64 | SIGN64),
	CVT("cvt.rn.f32.s8 %d, %a", 32, 32, 0xff, ONE_F32 | SIGN32),
	CVT("cvt.rzi.s32.f32 %d, %a", 32, 32, 0xc02ccccd, (uint32_t)-2), /* -2.7 */
	CVT("cvt.rni.s32.f32 %d, %a", 32, 32, 0x40200000, 2),            /* 2.5 */
	CVT("cvt.rmi.s32.f32 %d, %a", 32, 32, 0xc02ccccd, (uint32_t)-3),
	CVT("cvt.rpi.s32.f32 %d, %a", 32, 32, 0x40266666, 3),
	CVT("cvt.rzi.s32.f32 %d, %a", 32, 32, NAN_F32, 0),
	CVT("cvt.rzi.s32.f32 %d, %a", 32, 32, INF_F32, 0x7fffffff),
	CVT("cvt.rzi.s32.f32 %d, %a", 32, 32, INF_F32 | SIGN32, SIGN32),
	CVT("cvt.rzi.u32.f32 %d, %a", 32, 32, 0xbf800000, 0),
	CVT("cvt.rzi.u32.f32 %d, %a", 32, 32, INF_F32, 0xffffffff),
	CVT("cvt.rzi.u64.f32 %d, %a", 32, 64, INF_F32, UINT64_MAX),
	CVT("cvt.rzi.s64.f32 %d, %a", 32, 64, NAN_F32, SIGN64),
	CVT("cvt.rzi.s64.f64 %d, %a", 64, 64, 0xc3e0000000000000, SIGN64),
	CVT("cvt.rzi.s32.f64 %d, %a", 64, 32, 0x41dfffffffffffff, 0x7fffffff),
	CVT("cvt.rzi.u8.f32 %d, %a", 32, 32, 0x43a00000, 255), /* 320 */
	CVT("cvt.f64.f32 %d, %a", 32, 64, ONE_F32, ONE_F64),
	CVT("cvt.rn.f32.f64 %d, %a", 64, 32, 0x3ff0000010000000, ONE_F32), /* a tie, to even */
	CVT("cvt.rp.f32.f64 %d, %a", 64, 32, 0x3ff0000000000001, ONE_F32 + 1),
	CVT("cvt.rz.f32.f64 %d, %a", 64, 32, 0x7fefffffffffffff, MAX_F32),
	CVT("cvt.rn.f32.f64 %d, %a", 64, 32, INF_F64 + 1, NAN_F32),
	CVT("cvt.rni.f32.f32 %d, %a", 32, 32, 0xbf000000, SIGN32), /* -0.5 -> -0 */
	CVT("cvt.rpi.f64.f64 %d, %a", 64, 64, 0x3fe0000000000000, ONE_F64),
	CVT("cvt.sat.f32.f32 %d, %a", 32, 32, 0x40000000, ONE_F32),
	CVT("cvt.ftz.f32.f32 %d, %a", 32, 32, TINY_F32, 0),
	CVT("cvt.f32.f16 %d, %a", 16, 32, 0x0001, 0x33800000),
	CVT("cvt.f32.f16 %d, %a", 16, 32, 0xfc00, INF_F32 | SIGN32),
	CVT("cvt.rn.f16.f32 %d, %a", 32, 16, 0x477fe000, 0x7bff), /* 65504 */
	CVT("cvt.rn.f16.f32 %d, %a", 32, 16, 0x477ff000, 0x7c00), /* 65520: a tie, up */
	CVT("cvt.rz.f16.f32 %d, %a", 32, 16, 0x477ff000, 0x7bff),
	CVT("cvt.rn.f16.f32 %d, %a", 32, 16, 0x33000000, 0x0000), /* 2^-25: a tie, to even */
	CVT("cvt.rn.f16.f32 %d, %a", 32, 16, 0x33000001, 0x0001),
	CVT("cvt.rn.f16.f32 %d, %a", 32, 16, NAN_F32, 0x7fff),
	CVT("cvt.rn.bf16.f32 %d, %a", 32, 16, 0x3f808000, 0x3f80), /* a tie, to even */
	CVT("cvt.rn.bf16.f32 %d, %a", 32, 16, 0x3f818000, 0x3f82),
	CVT("cvt.f32.bf16 %d, %a", 16, 32, 0x3f80, ONE_F32),
	CVT("cvt.rn.f16.s32 %d, %a", 32, 16, 100000, 0x7c00),
	CVT("cvt.rzi.s32.f16 %d, %a", 16, 32, 0xc500, (uint32_t)-5),
	CVT("cvt.rna.tf32.f32 %d, %a", 32, 32, 0x3f801000, 0x3f802000),
	{"cvt.rn.f16x2.f32 %d, %a, %b", 0x3f800000, 0x40000000, 0, 0x3c004000, 32, 32, 32, 32},
	{"cvt.rn.relu.bf16x2.f32 %d, %a, %b", 0xbf800000, 0x40000000, 0, 0x4000, 32, 32, 32, 32},
};

TEST_DEVICE

static char text[TEXT_BYTES];
static size_t text_length;

static void put(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void put(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	text_length +=
		(size_t)vsnprintf(text + text_length, sizeof(text) - text_length, format, args);
	va_end(args);
	assert_true(text_length < sizeof(text));
}

/* %d -> %d32_1 and so on: the register of that operand's width. */
static void put_insn(const struct insn_case *c)
{
	const unsigned char bits[] = {c->d_bits, c->a_bits, c->b_bits, c->c_bits};

	for (const char *at = c->text; *at; at++) {
		const char *letter = at[0] == '%' ? strchr("dabc", at[1]) : NULL;

		if (letter && *letter) {
			put("%%%c%u", *letter, bits[letter - "dabc"]);
			at++;
		} else {
			put("%c", *at);
		}
	}
	put(";\n");
}

static void put_operand(char name, unsigned bits, uint64_t value)
{
	if (bits == 1)
		put("setp.ne.u32 %%%c1, %u, 0;\n", name, value != 0);
	else
		put("mov.b%u %%%c%u, 0x%llx;\n", bits, name, bits, (unsigned long long)value);
}

/* One kernel for all cases: case i leaves its result, widened to 64 bits, at out[i]. */
static void run_cases(const struct insn_case *cases, size_t count)
{
	uint64_t out = device_alloc(&device, count * 8);
	const uint64_t *results = device_host(&device, out);

	text_length = 0;
	put(".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 out)\n{\n"
	    ".reg .pred %%d1, %%a1, %%b1, %%c1;\n.reg .b16 %%d16, %%a16, %%b16, %%c16;\n"
	    ".reg .b32 %%d32, %%a32, %%b32, %%c32;\n.reg .b64 %%d64, %%a64, %%b64, %%c64;\n"
	    ".reg .b64 %%out, %%wide;\nld.param.u64 %%out, [out];\n");
	for (size_t i = 0; i < count; i++) {
		const struct insn_case *c = &cases[i];

		put_operand('a', c->a_bits, c->a);
		put_operand('b', c->b_bits, c->b);
		put_operand('c', c->c_bits, c->c);
		put_insn(c);
		if (c->d_bits == 1)
			put("selp.u64 %%wide, 1, 0, %%d1;\n");
		else if (c->d_bits == 64)
			put("mov.b64 %%wide, %%d64;\n");
		else
			put("cvt.u64.u%u %%wide, %%d%u;\n", c->d_bits, c->d_bits);
		put("st.global.u64 [%%out+%zu], %%wide;\n", i * 8);
	}
	put("ret;\n}\n");
	device_load(&device, text);
	device_must_run(&device, "k", 1, 1, 1, out);
	for (size_t i = 0; i < count; i++) {
		if (results[i] != cases[i].expected)
			fail_msg("%s of %llx %llx %llx gives %llx, not %llx", cases[i].text,
				 (unsigned long long)cases[i].a, (unsigned long long)cases[i].b,
				 (unsigned long long)cases[i].c, (unsigned long long)results[i],
				 (unsigned long long)cases[i].expected);
	}
}

static void test_integer(void **state)
{
	run_cases(integer_cases, ARRAY_SIZE(integer_cases));
}

static void test_float(void **state)
{
	run_cases(float_cases, ARRAY_SIZE(float_cases));
}

static void test_cvt(void **state)
{
	run_cases(cvt_cases, ARRAY_SIZE(cvt_cases));
}

#define HEADER                                                                                   \
	".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 out)\n{\n" \
	".reg .pred %p<4>;\n.reg .b16 %h<8>;\n.reg .b32 %r<16>;\n.reg .b64 %d<8>;\n"             \
	".reg .b64 %out;\nld.param.u64 %out, [out];\n"

/* Runs a body of one thread that writes words to [%out], and compares them. */
static void expect_words(const char *body, const uint32_t *expected, size_t count)
{
	uint64_t out = device_alloc(&device, count * 4);

	text_length = 0;
	put("%s%s\nret;\n}\n", HEADER, body);
	device_load(&device, text);
	device_must_run(&device, "k", 1, 1, 1, out);
	assert_memory_equal(device_host(&device, out), expected, count * 4);
}

static void test_carry(void **state)
{
	/* (2^64 - 1) + 1 in two halves, 2^64 - 1 below zero, and a 64 x 64 -> 128 bit product. */
	expect_words("add.cc.u32 %r0, 0xffffffff, 1; addc.cc.u32 %r1, 0xffffffff, 0;"
		     "addc.u32 %r2, 0, 0;"
		     "sub.cc.u32 %r3, 0, 1; subc.cc.u32 %r4, 0, 0; subc.u32 %r5, 7, 0;"
		     "mad.lo.cc.u32 %r6, 0xffffffff, 0xffffffff, 0xffffffff;"
		     "madc.hi.u32 %r7, 0xffffffff, 0xffffffff, 1;"
		     "st.global.v4.u32 [%out], {%r0, %r1, %r2, %r3};"
		     "st.global.v4.u32 [%out+16], {%r4, %r5, %r6, %r7};",
		     (const uint32_t[]){0, 0, 1, 0xffffffff, 0xffffffff, 6, 0, 0}, 8);
}

static void test_vectors(void **state)
{
	expect_words("mov.b32 %r0, 0x11223344; mov.b32 {%h0, %h1}, %r0; mov.b32 %r1, {%h1, %h0};"
		     "mov.b64 %d0, {%r0, %r1}; mov.b64 {%r2, _}, %d0;"
		     "st.global.u8 [%out+12], %r0; st.global.v2.b16 [%out+16], {%h1, %h0};"
		     "ld.global.s8 %r3, [%out+12]; ld.global.u16 %r4, [%out+16];"
		     "st.global.u64 [%out], %d0; st.global.u32 [%out+8], %r2;"
		     "st.global.u32 [%out+20], %r3; st.global.u32 [%out+24], %r4;",
		     (const uint32_t[]){0x11223344, 0x33441122, 0x11223344, 0x44, 0x33441122, 0x44,
					0x1122},
		     7);
}

static void test_pairs(void **state)
{
	expect_words("setp.lt.s32 %p0|%p1, 1, 2; selp.u32 %r0, 1, 0, %p0;"
		     "selp.u32 %r1, 1, 0, %p1; lop3.and.b32 _|%p2, 3, 1, 1, 0x80, %p0;"
		     "selp.u32 %r2, 1, 0, %p2; mov.b32 %r4, 0x3c004000;"
		     "setp.eq.f16x2 %p0|%p1, %r4, 0x3c003c00; selp.u32 %r5, 1, 0, %p0;"
		     "selp.u32 %r6, 1, 0, %p1; @!%p0 mov.u32 %r7, 9;"
		     "st.global.v4.u32 [%out], {%r0, %r1, %r2, %r5};"
		     "st.global.v2.u32 [%out+16], {%r6, %r7};",
		     (const uint32_t[]){1, 0, 1, 0, 1, 9}, 6);
}

static void test_atomics(void **state)
{
	expect_words(
		"atom.global.add.u32 %r0, [%out], 5; atom.global.add.u32 %r1, [%out], 6;"
		"red.global.max.s32 [%out+4], -3; red.global.min.s32 [%out+4], -3;"
		"atom.global.cas.b32 %r2, [%out+8], 0, 7; atom.global.cas.b32 %r3, [%out+8], 0, 8;"
		"red.global.add.f32 [%out+12], 0f3F800000; red.global.add.f32 [%out+12], "
		"0f40000000;"
		"atom.global.inc.u32 %r4, [%out+16], 1; atom.global.inc.u32 %r4, [%out+16], 1;"
		"atom.global.dec.u32 %r5, [%out+20], 9; atom.global.exch.b32 %r6, [%out+24], 3;"
		"red.global.or.b32 [%out+24], 12; red.global.and.b32 [%out+24], 6;"
		"red.global.xor.b32 [%out+24], 1;"
		"red.global.add.noftz.f16x2 [%out+28], 0x3c004000;"
		"red.relaxed.gpu.global.add.u64 [%out+32], 0x100000001;",
		(const uint32_t[]){11, (uint32_t)-3, 7, 0x40400000, 0, 9, 7, 0x3c004000, 1, 1}, 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_integer, setup, teardown),
		cmocka_unit_test_setup_teardown(test_float, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cvt, setup, teardown),
		cmocka_unit_test_setup_teardown(test_carry, setup, teardown),
		cmocka_unit_test_setup_teardown(test_vectors, setup, teardown),
		cmocka_unit_test_setup_teardown(test_pairs, setup, teardown),
		cmocka_unit_test_setup_teardown(test_atomics, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
