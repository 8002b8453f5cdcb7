/* The free memory of a GPU: without that of the sessions and of programs outside carve. The
 * driver's figures of processes decide that. The words of a session's processes count
 * for memory that no figure has, as far as there is some, and within the slice. */
#pragma once

#include <stdint.h>

struct gpu_sample;
struct settling;
struct process;
struct session;

/* Keeps what the newest sample says of one process of the session, while it says so beyond doubt.
 */
void figures_note(const struct session *session, struct process *process);
/* Bytes that the session's processes and strays hold on GPU `position` of it. */
uint64_t session_held(const struct session *session, uint32_t position,
		      const struct gpu_sample *sample);
/* The bytes that are shown as its use there: the sum of its charges. Where memory bypasses the
 * slice, all that its programs hold by the driver's figures. */
uint64_t session_uses(const struct session *session, uint32_t position);
/* Those that may hold something: only sessions with a ledger have processes, strays may be any
 * session's, and there may be thousands that hold nothing. */
struct session *holding_first(const struct settling *settling);
struct session *holding_next(const struct session *session);
/* Sets `outside` of all GPUs that the newest sample is of, and of their shared instances. */
void outside_compute(struct settling *settling);
