/* A ledger that hostile processes of its session scribble into: the daemon, which reads it by the
 * shape that it checked, does its work on it without leaving the mapping. The input is laid over a
 * good ledger; then the daemon settles, recovers, reaps and assigns every slot. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/ledger.h"

#define GPUS 3u
#define SLOTS 8u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void work(const struct ledger *l)
{
	for (uint32_t slot = 0; slot < SLOTS; slot++)
		ledger_recover(l, slot);
	for (uint32_t slot = 1; slot < SLOTS; slot++) {
		for (uint32_t gpu = 0; gpu < GPUS; gpu++) {
			ledger_settle(l, slot, gpu, 700 * 1024 * 1024);
			(void)ledger_slot_bytes(l, slot, gpu);
			(void)ledger_committed(l, gpu);
		}
		ledger_slot_release(l, slot);
		for (uint32_t gpu = 0; gpu < GPUS; gpu++)
			if (ledger_slot_bytes(l, slot, gpu))
				abort(); /* the next process would start with it */
		ledger_slot_assign(l, slot, 4711, 12345);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct ledger_limits limits = {.gpu_count = GPUS};
	size_t bytes = ledger_size(GPUS, SLOTS);
	struct ledger_header *header = aligned_alloc(4096, bytes), shape;

	if (!header)
		return 0;
	memset(header, 0, bytes);
	ledger_init(header, GPUS, SLOTS);
	shape = *header;
	/* Slices of the input go where they say: two bytes of offset, one of length, then bytes. */
	while (size > 3) {
		size_t at = (size_t)(data[0] | data[1] << 8) % bytes, length = data[2];

		data += 3;
		size -= 3;
		length = length < size ? length : size;
		if (at + length <= bytes)
			memcpy((char *)header + at, data, length);
		data += length;
		size -= length;
	}
	/* The daemon does not work on a ledger that it would refuse to take back. */
	(void)ledger_check(header, bytes);
	struct ledger l = {.limits = &limits, .header = header, .shape = &shape};
	work(&l);
	free(header);
	return 0;
}
