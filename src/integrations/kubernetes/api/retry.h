/* How long to wait after calls to the API server that failed. Pure. */
#pragma once

/* The wait doubles up to this, so that an API server that comes back is noticed soon, and one that
 * is away for an hour hears little. */
#define RETRY_SECONDS_MAX 60u

/* After so many failures before this one; `random` is any number: half of the wait is random, as
 * all nodes lose the API server together. */
unsigned retry_wait_ms(unsigned failures, unsigned random);
