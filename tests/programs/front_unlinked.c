/* Calls the driver without naming its library: whatever the program brought with it has to do. */
#include "base/cuda_abi.h"

extern __attribute__((visibility("default"))) CUresult (*const front_unlinked)(int *version);

CUresult (*const front_unlinked)(int *version) = cuDriverGetVersion;
