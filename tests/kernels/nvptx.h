/* Names of PTX's special registers and of the intrinsics that the kernels use. */
#pragma once

#define tid_x __nvvm_read_ptx_sreg_tid_x()
#define tid_y __nvvm_read_ptx_sreg_tid_y()
#define ntid_x __nvvm_read_ptx_sreg_ntid_x()
#define ctaid_x __nvvm_read_ptx_sreg_ctaid_x()
#define ctaid_y __nvvm_read_ptx_sreg_ctaid_y()
#define nctaid_x __nvvm_read_ptx_sreg_nctaid_x()
#define laneid __nvvm_read_ptx_sreg_laneid()
#define thread_x (ctaid_x * ntid_x + tid_x)
#define block_sync() __nvvm_bar_sync(0)
#define ALL_LANES 0xffffffff
/* The value of the lane `offset` above, in a whole warp. */
#define shuffle_down(value, offset) __nvvm_shfl_sync_down_i32(ALL_LANES, value, offset, 31)
#define atomic_add_int(place, value) __nvvm_atom_add_gen_i(place, value)
