/* Copies in general: what all the forms of cuMemcpy come down to. */
#pragma once

#include "cuda/op.h"

/* Checks the copy and gives it to the stream that the handle means; waits for it where the API
 * says so: `async` false, or pageable host memory. */
CUresult copy_start(CUcontext ctx, CUstream handle, struct op_copy *copy, bool async);
/* Fills in an op_copy from the driver API's description. */
CUresult copy_from_2d(const CUDA_MEMCPY2D *p, struct op_copy *ret);
CUresult copy_from_3d(const CUDA_MEMCPY3D *p, struct op_copy *ret);
/* Resolves unified sides and checks all of it against memory as it is now. */
CUresult copy_check(struct op_copy *copy);
