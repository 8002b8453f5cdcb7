/* The size of a slice, as users write it. A size is an option (--vram 4), a field of JSON ("vram":
 * "4GiB"), a label of a container (carve.gpu=0.5) or a member of libcarve's request. This module
 * turns such a text into a request. Pure. */
#pragma once

#include "core/place.h"

struct error;

enum request_size { REQUEST_VRAM, REQUEST_GPU_MEMORY, REQUEST_GPU, REQUEST_SIZES };

/* A request before anything was said: any memory on one GPU. */
#define REQUEST_NONE ((struct place_request){.kind = PLACE_BYTES, .count = 1})

/* Puts a size into a request: its memory, or the GPUs or the part of one, which is a part of the
 * GPU's time, too, unless that was said. The text is as units.h has it: units_parse_vram(),
 * units_parse_gpu_memory() or units_parse_gpu(). 0; -ERANGE: it is below the smallest slice, or
 * negative, and *err says why. */
int request_size_put(enum request_size size, const char *text, struct place_request *to,
		     struct error *err);
