/* The figures that a host shows of itself, as JSON in a memfd (the caller's; offset 0). -errno:
 * failed. */
#pragma once

#include "host/wire.h"

struct host;

/* As they are called in JSON. */
extern const char *const stat_memory_names[WIRE_MEMORY_KINDS];
extern const char *const stat_engine_names[WIRE_ENGINES];

/* `simhost stat`. */
int stat_write(struct host *h);
/* `simhost trace`: Chrome trace format. */
int stat_write_trace(struct host *h);
