/* The metrics of a node that are no slices': its GPUs, its queues, and its daemon. */
#pragma once

struct metrics_text;
struct node;

void metrics_view_gpus(const struct node *node, struct metrics_text *text);
void metrics_view_queues(const struct node *node, struct metrics_text *text);
void metrics_view_daemon(const struct node *node, struct metrics_text *text);
