#include "base/nvml_abi.h"

#include "cuda_abi_table.h"

const struct abi_entry abi_ours[] = {
#include "nvml_abi_table.inc"
};
const size_t abi_ours_count = sizeof(abi_ours) / sizeof(abi_ours[0]);
