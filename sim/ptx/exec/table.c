/* The handlers by operation. Compiled once for each PTX_ISA. */
#include "ptx/exec/handlers.h"

const exec_fn ISA(exec_table)[] = {
#define X(name) [OP_##name] = ISA(op_##name),
	PTX_OPS_INT(X) PTX_OPS_FLOAT(X) PTX_OPS_MEMORY(X)
#undef X
#define X(name) [OP_##name] = op_##name,
		PTX_OPS_WARP(X) PTX_OPS_FLOW(X)
#undef X
};
