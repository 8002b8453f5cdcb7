/* What a host shows of itself, as JSON in a memfd (the caller's; offset 0). -errno: failed. */
#pragma once

struct host;

/* `simhost stat`. */
int stat_write(struct host *h);
/* `simhost trace`: Chrome trace format. */
int stat_write_trace(struct host *h);
