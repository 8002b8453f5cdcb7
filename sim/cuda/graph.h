/* Graphs. */
#pragma once

#include "cuda/op.h"

struct graph_run;

/* Runs a launched graph's nodes, on the lane's thread. */
CUresult graph_run(struct lane *lane, struct graph_run *run);
void graph_run_ref(struct graph_run *run);
void graph_run_unref(struct graph_run *run);
