/* MIG profiles and placements of the simulator's GPU models, for tests of the policy, whose headers
 * use the same words for structures of its own. Constant data. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct board_profile {
	const char *name;
	uint64_t memory_bytes;
	uint32_t nvml_enum, id, sms, slices, limit;
	uint16_t engines[4]; /* decoders, encoders, JPEG, optical flow */
	uint32_t starts;     /* legal ones, a bit each */
	uint8_t size;
};

#define BOARD_PROFILES_MAX 32u

/* Keys of the models that have MIG, in the order of `simhost list`. NULL ends them. */
const char *board_key(size_t index);
/* The model's profiles; returns how many. */
size_t board_profiles(const char *key, struct board_profile out[BOARD_PROFILES_MAX]);
