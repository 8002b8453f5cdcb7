/* The vendor's header with our prototypes on top: one that differs does not compile. Where no
 * vendor header is installed, the table is empty. */
#include "cuda_abi_table.h"

#if __has_include(<cuda.h>)
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#if CUDA_VERSION == 13000
/* Types of newer headers, which prototypes of newer functions need. */
typedef cuuint32_t CUlogicalEndpointId;
typedef struct CUstreamCigCaptureParams_st CUstreamCigCaptureParams;
typedef void (*CUgraphRecaptureCallback)(void);
#include "base/cuda_functions.h"

const struct abi_entry abi_vendor[] = {
#include "cuda_abi_table.inc"
};
const size_t abi_vendor_count = sizeof(abi_vendor) / sizeof(abi_vendor[0]);
#define HAVE_VENDOR_HEADER
#endif
#endif

#ifndef HAVE_VENDOR_HEADER
const struct abi_entry abi_vendor[1];
const size_t abi_vendor_count;
#endif
