/* The users that hold a GPU, as `carve gpu list` and `carve explain` print them. */
#pragma once

#include <jansson.h>

/* Prints a line for each of these GPUs on which another user is named. The owners of other users'
 * sessions are told to administrators, and to all where `show_owners` of carved.json allows it. */
void gpu_owners_print(const json_t *gpus);
