/* Calls whose answer needs the inventory and the driver's newest figures. */
#pragma once

#include "daemon/api/http.h"

struct node;

/* Defers the call until a sample that starts now is in. Where there is no GPU it is not deferred.
 * Then `answer` answers it in its user's turn. `arg` (NULL, or from malloc) is freed afterwards,
 * also where the client goes. */
void fresh_defer(struct call *call, call_answer answer, void *arg);
/* As fresh_defer(), but asks for no sample: the call waits for the next one that is taken for
 * another reason or by the clock, which is a second at most. */
void fresh_await(struct call *call, call_answer answer, void *arg);
/* The inventory or a sample is in. */
void fresh_sampled(struct node *node);
