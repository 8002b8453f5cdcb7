/* The services that the kubelet calls on a node's plugin. For the loop's thread. */
#pragma once

#include <uv.h>

#include "integrations/kubernetes/grpc/grpc.h"
#include "integrations/kubernetes/node/calls.h"

struct prepare;
struct watcher;

struct kubelet {
	struct calls calls; /* for claims */
	const char *driver, *node;
	const char *dra_socket; /* the socket that the kubelet is told to call */
	struct prepare *prepare;
	struct watcher *watcher;
	struct health_stream *streams; /* the streams that watch devices' health */
};

/* After the first fields are filled in. */
void kubelet_open(struct kubelet *kubelet, uv_loop_t *loop);
/* Begins no more calls. Those that run are answered as the loop runs on. */
void kubelet_close(struct kubelet *kubelet);

/* Methods whose context is a struct kubelet. */
extern const struct grpc_method kubelet_registration[];
extern const struct grpc_method kubelet_dra[];

/* Sends the devices' health to those who watch it. */
void kubelet_report_health(struct kubelet *kubelet);
