/* Memory that the GPU fills. */
#include "front/cuda/gate/gate.h"
#include "front/cuda/hooks.h"

#define ROW(name, address_t, value_t, count_t, unit, stream)                                 \
	GATED_SELDOM(name, (address_t to, value_t value, count_t count), (to, value, count), \
		     stream, GATE_WORK_FILL, (uint64_t)count *(unit))
#define ROW_ASYNC(name, address_t, value_t, count_t, unit, stream_of)                     \
	GATED_SELDOM(name, (address_t to, value_t value, count_t count, CUstream stream), \
		     (to, value, count, stream), stream_of(stream), GATE_WORK_FILL,       \
		     (uint64_t)count *(unit))
#define AREA(name, address_t, value_t, count_t, unit, stream)                                     \
	GATED_SELDOM(name,                                                                        \
		     (address_t to, count_t pitch, value_t value, count_t width, count_t height), \
		     (to, pitch, value, width, height), stream, GATE_WORK_FILL,                   \
		     (uint64_t)width *height *(unit))
#define AREA_ASYNC(name, address_t, value_t, count_t, unit, stream_of)                             \
	GATED_SELDOM(name,                                                                         \
		     (address_t to, count_t pitch, value_t value, count_t width, count_t height,   \
		      CUstream stream),                                                            \
		     (to, pitch, value, width, height, stream), stream_of(stream), GATE_WORK_FILL, \
		     (uint64_t)width *height *(unit))

/* Each width in every form: the oldest, today's, that of the thread's own stream; with a stream. */
#define FAMILY(name, form, value_t, unit)                                                          \
	form(name, CUdeviceptr_v1, value_t, unsigned int, unit, CU_STREAM_LEGACY)                  \
		form(name##_v2, CUdeviceptr, value_t, size_t, unit, CU_STREAM_LEGACY)              \
			form(name##_v2_ptds, CUdeviceptr, value_t, size_t, unit,                   \
			     CU_STREAM_PER_THREAD) form##_ASYNC(name##Async, CUdeviceptr, value_t, \
								size_t, unit, gate_stream_of)      \
				form##_ASYNC(name##Async_ptsz, CUdeviceptr, value_t, size_t, unit, \
					     gate_stream_ptsz)

FAMILY(cuMemsetD8, ROW, unsigned char, 1u)
FAMILY(cuMemsetD16, ROW, unsigned short, 2u)
FAMILY(cuMemsetD32, ROW, unsigned int, 4u)
FAMILY(cuMemsetD2D8, AREA, unsigned char, 1u)
FAMILY(cuMemsetD2D16, AREA, unsigned short, 2u)
FAMILY(cuMemsetD2D32, AREA, unsigned int, 4u)
