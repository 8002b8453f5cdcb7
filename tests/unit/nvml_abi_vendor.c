/* The vendor's header, where one is installed that is new enough to have all of our names; else the
 * table is empty. */
#include "cuda_abi_table.h"

#if __has_include(<nvml.h>)
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>

#ifdef NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
const struct abi_entry abi_vendor[] = {
#include "nvml_abi_table.inc"
};
const size_t abi_vendor_count = sizeof(abi_vendor) / sizeof(abi_vendor[0]);
#define HAVE_VENDOR_HEADER
#endif
#endif

#ifndef HAVE_VENDOR_HEADER
const struct abi_entry abi_vendor[1];
const size_t abi_vendor_count;
#endif
