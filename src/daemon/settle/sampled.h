/* What follows from a new sample of the driver's figures, in one order. */
#pragma once

struct node;

/* Called when a sample is in. */
void settle_sampled(struct node *node);
