/* Exported memory that its exporter gave up, or left when it died, and that its importer has from
 * then on. Nobody is ended for the part of it that takes the importer's session beyond the slice.
 *
 * An exporter is a session on one of its GPUs. It counts by what its own processes had charged when
 * they gave it up, and by no more than its slice. Memory that only descriptors keep afterwards
 * (descriptors.h) counts again when somebody has it. The database knows all of that, so that a
 * daemon's end changes nothing.
 *
 * This stays for a reason. Without it `over_policy` ends the process that imported memory as soon
 * as the exporter has freed it, though the importer never took more than its slice
 * (tests/system/slice/test_slice_orphans.py). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct exporter;
struct settling;
struct session;

struct orphans {
	struct exporter *exporters;
	uint64_t given_ns;  /* CLOCK_MONOTONIC, when any last gave something up */
	bool read;          /* from the database; they count from the first sample on */
	bool store_failing; /* that was logged */
};

/* The session gave up so many bytes on GPU `position` of it, which others may have. */
void orphans_give(struct session *session, uint32_t position, uint64_t bytes);
/* The bytes that exporters of other sessions gave up in the last seconds. */
uint64_t orphans_of_others(const struct session *session);
/* Memory that a session's processes gave up on GPU `position` of it, and descriptors may keep
 * still. */
uint64_t orphans_remain(const struct settling *settling, const char *id, uint32_t position);
/* Whether descriptors with that mark_session() are an exporter's. */
bool orphans_have_mark(const struct settling *settling, uint32_t mark);
/* Looks what of it descriptors keep. Called when a sample is in and they have been read. */
void orphans_sampled(struct settling *settling);
/* Writes what has changed to the database. */
void orphans_store(struct settling *settling);

/* Takes up what the daemon before this one wrote. 0 or -errno. */
int orphans_load(struct settling *settling);
/* The sessions are back: those whose last process ended while there was no daemon gave up what they
 * may have had. */
void orphans_resume(struct settling *settling);
void orphans_free(struct settling *settling);
