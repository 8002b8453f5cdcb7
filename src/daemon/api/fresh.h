/* Calls whose answer needs the inventory and the driver's newest figures. */
#pragma once

struct call;
struct node;

typedef void (*fresh_cb)(struct call *call, void *arg);

/* Defers the call until a sample that starts now is in, then has `answer` answer it (or at once
 * where there is no GPU). `arg` (NULL, or from malloc) is freed afterwards, also where the client
 * goes. */
void fresh_defer(struct call *call, fresh_cb answer, void *arg);
/* The inventory or a sample is in. */
void fresh_sampled(struct node *node);
