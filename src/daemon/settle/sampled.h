/* The steps that follow a new sample of the driver's figures, in order. */
#pragma once

struct settling;

/* Called when a sample is in. */
void settle_sampled(struct settling *settling);
