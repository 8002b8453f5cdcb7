/* Strays: processes that the driver lists and that never attached, though a command of `carve run`
 * started them. They reached the driver by bypassing the front. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/host/peer.h"

struct gpu_sample;
struct settling;
struct session;

/* A process of the driver's lists that is attached nowhere. */
struct stray {
	struct stray *next; /* the list of struct settling */
	struct process_id id;
	struct session *session; /* NULL: no session's, but a program outside carve */
	bool logged;
	bool refused; /* it may not be signalled */
};

/* Learns from the newest sample who is one. */
void strays_sampled(struct settling *settling);
/* The bytes that a session's strays hold on a GPU; in the instance with that UUID, unless NULL. */
uint64_t strays_held(const struct session *session, const struct gpu_sample *sample,
		     const uint8_t *uuid);
/* Whether a process is one of some session's that holds memory. */
bool strays_has(const struct settling *settling, pid_t pid);
/* A process outside carve says by its own marks that it belongs to the session: it is a stray of it
 * from now on. */
void strays_claim(struct settling *settling, struct process_id process, struct session *session);
/* Whether any session has one. */
bool strays_any(const struct settling *settling);
/* Kills a session's strays that hold memory. True: there were any, but for those that may not be
 * signalled, as was found before. */
bool strays_kill(struct session *session);
/* The session ends; all: the daemon does. */
void strays_forget(struct session *session);
void strays_free(struct settling *settling);
