/* CUDA arrays: row-major here, as no program can tell. */
#pragma once

#include "cuda/memory.h"

struct CUarray_st {
	CUDA_ARRAY3D_DESCRIPTOR desc;
	CUcontext ctx;
	uint64_t address; /* its range; not for programs */
	uint8_t *host;
	size_t width; /* bytes of a row that are the program's */
	size_t pitch; /* bytes a row */
	size_t rows;  /* a layer */
	size_t layers;
	bool is_level; /* a level of a mipmapped array, which owns the memory */
};

/* Bytes of an element, all channels; 0: not a format that is simulated. */
size_t array_element_bytes(CUarray_format format, unsigned int channels);
