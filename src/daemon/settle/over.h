/* Sessions that hold more than their slices by the driver's figures: shown, logged, and ended where
 * the policy says so. */
#pragma once

struct settling;

/* Called when a sample is in. */
void over_compute(struct settling *settling);
