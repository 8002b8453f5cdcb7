/* The things that a daemon leaves to the program that it becomes (upgrade.h). They are a JSON text
 * in a memfd whose number is in the environment, and the descriptors that it names, which stay open
 * over the exec. Its keys are an ABI between versions of carve: one that is not known is passed
 * over, and none changes its meaning.
 *
 *   fds          all descriptors in it
 *   runtime      lock, http, attach: descriptors; supervised: the sockets are a supervisor's; sole:
 *                the descriptor of its name (sole.h)
 *   state        dir, lock: the state directory and the descriptor of its lock
 *   log          its path
 *   devices      modules of the driver that were loaded when the service started (devices.h)
 *   claims       uuid, fd: the names that own GPUs (claims.h)
 *   claims_place dir, lock: where a system daemon files claims
 *   accounts     the descriptor of the accounts of leases (lease_accounts.h)
 *   sessions     id, counted_from: since when its GPU time is counted (ns since 1970)
 *   books        session; limits_rw, limits, ledger, wake: descriptors. Without limits_rw: of an
 *                earlier version
 *   namespaces   session, pid, fd: mount namespaces of root's commands
 *   warden       the link to the warden (privileges.h)
 *   launcher     the link to the launcher (launcher.h)
 *   attached     fd, peer, session, slot, settling: connections of the attach socket; sweeping: it
 *                waits for what ending processes held, or for a slot of the session of this ID
 *   connections  descriptors of idle HTTP connections
 *   calls        fd, peer, method, path, arguments, body, close: HTTP calls whose answer is due,
 *                in order; upgrade: it is the one that asked for this
 *   waiting      id, created, passed: what such calls that wait for room had gained */
#pragma once

#include <jansson.h>
#include <stdbool.h>

struct peer;

#define HANDOVER_ENV "CARVE_HANDOVER"
/* The version of the format as such. */
#define HANDOVER_VERSION 1

struct handover {
	json_t *root;
	unsigned char *taken; /* by descriptor; those of a handover that was read */
	int taken_size;
};

/* ---- leaving one -------------------------------------------------------------------------- */

/* An empty one; NULL: no memory. */
struct handover *handover_new(void);
/* A descriptor, to be put where it belongs. It stays the caller's. */
json_t *handover_fd(struct handover *handover, int fd);
json_t *handover_peer(const struct peer *peer);
/* Appends to the list `key`. */
void handover_add(struct handover *handover, const char *key, json_t *value);
/* Writes it into a memfd and has it and its descriptors, and no others, survive an exec. The memfd
 * or -errno. */
int handover_seal(struct handover *handover);

/* ---- taking one --------------------------------------------------------------------------- */

/* The one that the last program left; NULL: none. Removes it from the environment. */
struct handover *handover_find(void);
/* The descriptor is the caller's from now on; -1: there is none, or it was taken. */
int handover_take(struct handover *handover, const json_t *number);
bool handover_take_peer(const json_t *from, struct peer *ret);
/* Takes NULL. Closes what was not taken. */
void handover_free(struct handover *handover);
