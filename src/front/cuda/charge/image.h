/* The device memory that an image of code (PTX, cubin, fat binary) says it takes. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Bytes. The least that any driver takes for it: its large variables. Memory that it may take on
 * top, as far as the image shows: its code and its small variables, which share blocks with
 * others'. Both 0 where it cannot be told (compressed, or nothing that is known here). */
struct image_memory {
	uint64_t surely, perhaps;
};

/* As a program hands it to the driver, which finds its end by what is in it. NULL: nothing. */
struct image_memory image_in_memory(const void *image);
/* Reads the file. Nothing where it can't. */
struct image_memory image_of_file(const char *path);
/* At most `size` bytes are read. */
struct image_memory image_measure(const void *image, size_t size);
