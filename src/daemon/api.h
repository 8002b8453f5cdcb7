/* What the requests of the HTTP API mean (/v1). */
#pragma once

struct call;
struct node;

/* Answers the call, now or later. */
void api_handle(struct call *call);
/* The inventory or a sample is in: answers calls that waited for it. */
void api_sampled(struct node *node);
