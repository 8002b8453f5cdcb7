/* GET /metrics, which Prometheus reads. */
#pragma once

struct call;
struct error;
struct node;

int api_metrics_start(struct node *node, struct error *err);
/* The loop ends: no scrape goes on. */
void api_metrics_stop(struct node *node);
void api_get_metrics(struct call *call, const char *id);
