/* The internal operations, one handler each (exec/). PTX instructions are lowered to one or a few
 * of them. The order inside a family is relied on: OP_add_b16 + index of the type. */
#pragma once

/* Tables, which clang-format would pour into one stream. */
/* clang-format off */
#define PTX_OPS_B3(X, name) X(name##_b16) X(name##_b32) X(name##_b64)
#define PTX_OPS_I6(X, name) \
	X(name##_u16) X(name##_s16) X(name##_u32) X(name##_s32) X(name##_u64) X(name##_s64)
#define PTX_OPS_I4(X, name) X(name##_u32) X(name##_s32) X(name##_u64) X(name##_s64)
#define PTX_OPS_F2(X, name) X(name##_f32) X(name##_f64)
/* Plain (round to nearest even, no ftz or sat), and with the flags of the instruction. */
#define PTX_OPS_F4(X, name) X(name##_f32) X(name##_f64) X(name##_f32_flags) X(name##_f64_flags)
#define PTX_OPS_8(X, name) X(name##_u8) X(name##_s8) PTX_OPS_I6(X, name)

#define PTX_OPS_INT(X) \
	PTX_OPS_B3(X, mov) PTX_OPS_B3(X, add) PTX_OPS_B3(X, sub) PTX_OPS_B3(X, mul_lo) \
	PTX_OPS_B3(X, mad_lo) PTX_OPS_B3(X, and) PTX_OPS_B3(X, or) PTX_OPS_B3(X, xor) \
	PTX_OPS_B3(X, not) PTX_OPS_B3(X, cnot) PTX_OPS_B3(X, neg) PTX_OPS_B3(X, shl) \
	PTX_OPS_B3(X, selp) \
	PTX_OPS_I6(X, shr) PTX_OPS_I6(X, mul_hi) PTX_OPS_I6(X, mad_hi) PTX_OPS_I6(X, div) \
	PTX_OPS_I6(X, rem) PTX_OPS_I6(X, min) PTX_OPS_I6(X, max) PTX_OPS_I6(X, abs) \
	PTX_OPS_I6(X, sad) \
	X(mul_wide_u16) X(mul_wide_s16) X(mul_wide_u32) X(mul_wide_s32) \
	X(mad_wide_u16) X(mad_wide_s16) X(mad_wide_u32) X(mad_wide_s32) \
	PTX_OPS_I6(X, eq) PTX_OPS_I6(X, ne) PTX_OPS_I6(X, lt) PTX_OPS_I6(X, le) \
	PTX_OPS_I6(X, gt) PTX_OPS_I6(X, ge) \
	X(add_sat_s32) X(sub_sat_s32) X(mad_hi_sat_s32) \
	X(add_cc_u32) X(add_cc_u64) X(mad_lo_cc_u32) X(mad_lo_cc_u64) \
	X(mad_hi_cc_u32) X(mad_hi_cc_s32) X(mad_hi_cc_u64) X(mad_hi_cc_s64) \
	X(mul24_lo_u32) X(mul24_lo_s32) X(mul24_hi_u32) X(mul24_hi_s32) \
	PTX_OPS_I4(X, bfe) X(bfi_b32) X(bfi_b64) PTX_OPS_I4(X, bfind) PTX_OPS_I4(X, bfind_amt) \
	X(brev_b32) X(brev_b64) X(clz_b32) X(clz_b64) X(popc_b32) X(popc_b64) \
	X(shf_l_clamp) X(shf_l_wrap) X(shf_r_clamp) X(shf_r_wrap) \
	X(lop3) X(prmt) X(prmt_f4e) X(prmt_b4e) X(prmt_rc8) X(prmt_ecl) X(prmt_ecr) X(prmt_rc16) \
	X(dp4a) X(dp2a_lo) X(dp2a_hi) X(szext_u32) X(szext_s32) X(bmsk_wrap) X(bmsk_clamp) X(fns) \
	X(pred_mov) X(pred_and) X(pred_or) X(pred_xor) X(pred_not) \
	X(pack) X(unpack) \
	PTX_OPS_8(X, ext16) PTX_OPS_8(X, ext32) PTX_OPS_8(X, ext64)

#define PTX_OPS_FLOAT(X) \
	PTX_OPS_F4(X, fadd) PTX_OPS_F4(X, fsub) PTX_OPS_F4(X, fmul) PTX_OPS_F4(X, fma) \
	PTX_OPS_F4(X, fdiv) PTX_OPS_F4(X, fsqrt) \
	X(frcp_f32_flags) X(frcp_f64_flags) X(frsqrt_f32_flags) X(frsqrt_f64_flags) \
	X(fsin_f32_flags) X(fcos_f32_flags) X(flg2_f32_flags) X(fex2_f32_flags) \
	X(ftanh_f32_flags) \
	PTX_OPS_F2(X, fneg) PTX_OPS_F2(X, fabs) PTX_OPS_F2(X, fmin) PTX_OPS_F2(X, fmax) \
	PTX_OPS_F2(X, fcopysign) PTX_OPS_F2(X, ftestp) \
	PTX_OPS_F2(X, feq) PTX_OPS_F2(X, fne) PTX_OPS_F2(X, flt) PTX_OPS_F2(X, fle) \
	PTX_OPS_F2(X, fgt) PTX_OPS_F2(X, fge) PTX_OPS_F2(X, fnum) PTX_OPS_F2(X, fnan) \
	PTX_OPS_F2(X, fequ) PTX_OPS_F2(X, fneu) PTX_OPS_F2(X, fltu) PTX_OPS_F2(X, fleu) \
	PTX_OPS_F2(X, fgtu) PTX_OPS_F2(X, fgeu) \
	X(half) X(half_setp) X(cvt) X(cvt_pack_half) \
	X(cvt_f64_f32) X(cvt_f32_f64) X(cvt_f32_s32) X(cvt_f32_u32) X(cvt_f64_s32) \
	X(cvt_f64_u32) X(cvt_s32_f32) X(cvt_u32_f32)

#define PTX_OPS_MEMORY(X) \
	X(ld_b32) X(ld_b64) X(ld_any) X(st_b32) X(st_b64) X(st_any) X(atom) X(copy_async) \
	X(fence) X(isspacep) X(local_address)

#define PTX_OPS_WARP(X) \
	X(shfl) X(vote_all) X(vote_any) X(vote_uni) X(vote_ballot) X(match_any) X(match_all) \
	X(activemask) X(redux) X(elect) X(sreg) X(mbarrier) X(mbarrier_pending) \
	X(wmma_load) X(wmma_store) X(wmma_mma)

#define PTX_OPS_FLOW(X) \
	X(nop) X(label) X(join) X(bra) X(brx) X(call) X(call_indirect) X(ret) X(exit) X(trap) \
	X(bar_sync) X(bar_arrive) X(bar_red) X(nanosleep)

#define PTX_OPS(X) \
	PTX_OPS_INT(X) PTX_OPS_FLOAT(X) PTX_OPS_MEMORY(X) PTX_OPS_WARP(X) PTX_OPS_FLOW(X)
/* clang-format on */

enum ptx_op {
#define X(name) OP_##name,
	PTX_OPS(X)
#undef X
		OP_COUNT,
};
