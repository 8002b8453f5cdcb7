/* The rooms above this one act as sessions and processes live and end. The daemon's root
 * fills in one table (node_hooks.c), so that this room includes none of them. Each is called on
 * the loop's thread, and none may free the session or the process that it is given. `context` is
 * that of struct sessions. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct attach_connection;
struct holder;
struct process;
struct session;

struct session_hooks {
	/* The first: the session got its ledger. The second: it is one of those with a ledger, as
	 * one of the last daemon's is, and its processes take turns from now on. The third: the
	 * next daemon needs the ledger. */
	void (*ledger_made)(struct session *session);
	void (*attached)(struct session *session);
	void (*ledger_used)(const struct session *session);
	/* It asks for less than before. */
	void (*shrunk)(void *context);
	/* Room may have been made: requests that wait may be granted now. */
	void (*room_made)(void *context);
	/* It is about to get other sizes; and it has other sizes than before. */
	void (*resizing)(struct session *session);
	void (*resized)(const struct session *session);
	/* The bytes that one CUDA context takes in its MIG instance `position`; 0: not known. */
	uint64_t (*instance_context)(const struct session *session, uint32_t position);
	/* It has other MIG instances than before, or none any more. */
	void (*instances_left)(const struct session *session);
	/* The share of its GPUs' time that it had, for its record (slicing.h). */
	int64_t (*received)(const struct session *session);
	/* Its end is recorded; then its room is free, and it is forgotten: last of all `ended`. */
	void (*recorded)(struct session *session);
	void (*ended)(void *context);
	/* It is freed, recorded or not: before its processes are, and after. */
	void (*freeing)(struct session *session);
	void (*freed)(struct session *session);

	/* A command's mount namespace, to be kept for the next daemon; and no longer. */
	void (*namespace_made)(const struct holder *holder);
	void (*namespace_left)(const struct holder *holder);

	/* A process gave up memory that others may have imported. */
	void (*gave_up)(struct session *session, uint32_t position, uint64_t bytes);
	/* It is gone, and with it what it charged. `compared`: by the newest sample. */
	void (*uncharging)(const struct process *process, bool compared);
	/* It is freed, and its connection goes on without it. */
	void (*unconnected)(struct attach_connection *connection);
	/* The descriptor of a connection, which stays its own. */
	int (*descriptor)(const struct attach_connection *connection);
};
