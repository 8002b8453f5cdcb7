/* All state of the daemon. One loop, one thread: nothing here is locked. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/error.h"
#include "daemon/config.h"
#include "daemon/files.h"
#include "daemon/gpu/pool.h"
#include "daemon/gpu/probe.h"
#include "daemon/host/fair.h"
#include "daemon/host/keep.h"
#include "daemon/host/privileges.h"
#include "daemon/host/runtime.h"
#include "daemon/metrics/health.h"
#include "daemon/queue/launcher.h"
#include "daemon/report/report.h"
#include "daemon/separate.h"
#include "daemon/session/session.h"
#include "daemon/session/sessions.h"
#include "daemon/settle/device_access.h"
#include "daemon/settle/outsiders.h"
#include "daemon/settle/settling.h"
#include "daemon/slicing/slicing.h"
#include "daemon/store/state.h"
#include "daemon/waiting/quotas.h"
#include "daemon/waiting/waiting.h"

struct attach_server;
struct binding;
struct events;
struct fresh;
struct http_server;
struct gpu_time;
struct job_mapping;
struct idle;
struct leases;
struct mig;
struct queues;
struct session;
struct store;
struct upgrade;
struct usage;

struct node_options {
	bool system;
	bool warden;             /* it is the warden of a daemon that systemd runs */
	bool pod;                /* it serves in a pod of Kubernetes (host/pod.h) */
	uint64_t idle_exit_ns;   /* 0: never */
	const char *config_path; /* NULL: none */
	const char *state_dir;   /* that was named; NULL: none */
	const char *user;        /* likewise, whom a system daemon becomes */
	int ready_fd;            /* for the supervisor; -1: none */
};

struct node {
	uv_loop_t loop;
	struct node_options options;
	struct config config;        /* read anew on SIGHUP */
	char config_wrong[1024];     /* why the file was not taken; "": it was */
	struct json_t *config_notes; /* the texts of config_notes(); NULL: there were none yet */
	struct {
		bool state, runtime; /* in which directories its copy is */
	} config_kept;
	struct runtime runtime;
	struct state state;
	int64_t started; /* CLOCK_REALTIME, ns */
	struct pool pool;
	struct probe probe;
	struct store *store;
	struct events *events;
	struct keep keep; /* descriptors of ledgers, for the next daemon */
	struct privileges privileges;
	struct launcher launcher;
	struct separation separation;
	struct files files;
	struct upgrade *upgrade; /* NULL: none is asked for */
	unsigned devices;        /* loaded when the service started (devices.h) */
	/* Inventory, context costs and a sample without the probe's memory are in: requests are
	 * decided. */
	bool ready;
	uint64_t ready_sample; /* the number of that sample; 0: the probe has not ended */
	struct sessions sessions;
	struct settling settling;
	struct device_access access;
	struct outsiders outsiders; /* programs outside carve */
	struct slicing slicing;
	struct report report;
	struct quotas quotas;
	struct waiting waiting;
	struct fresh *fresh;      /* calls that wait for the next sample */
	struct binding *bindings; /* calls that wait for a limit of a cgroup */
	struct leases *leases;
	int accounts_fd;           /* accounts of leases; negative: none are kept */
	bool accounts_kept;        /* as takeover_accounts_look() last had it */
	struct queues *queues;     /* NULL: they cannot be had, */
	struct error queues_error; /* and why */
	struct mig *mig;           /* NULL until the inventory is in */
	struct idle *idle;         /* NULL until the inventory is in */
	struct usage *usage;
	/* The user as whom carve-web hands on what browsers ask (api_door.h), where there is one.
	 */
	bool door_is_there;
	uid_t door_uid;
	struct fair turns; /* the turns of users, at both sockets: http_prepare() runs them */
	struct attach_server *attach;
	struct http_server *http;
	struct metrics_health health;
	struct job_mapping *job_mapping;
	struct gpu_time *gpu_time;
	uv_check_t check;     /* a pass of the loop begins */
	uv_prepare_t prepare; /* runs what was put off, before the loop sleeps */
	uv_timer_t tick;
	uv_poll_t control; /* orders of the supervisor, */
	int control_fd;    /* from here; -1: they come as signals */
	uv_signal_t on_term, on_int, on_hup;
	int64_t clock_ahead; /* for clock_step() */
	uint64_t tick_ms;
	uint64_t second_ns; /* CLOCK_MONOTONIC of the last once-a-second work */
	uint64_t busy_ns;   /* likewise, when something last went on */
	unsigned rooms;     /* so many rooms of the table in rooms.c have started */
	bool serving;       /* all of them have */
	bool stopping;
	int exit_code;
};

/* For the rooms that still take the daemon as a whole. */
static inline struct node *node_of(const struct session *session)
{
	return session->sessions->context;
}
