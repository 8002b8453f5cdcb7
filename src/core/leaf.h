/* Which cgroup the driver's limit of a session is set on, and what becomes of one: pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/process.h"

/* The kind of process that asks for the limit. */
enum leaf_asker {
	LEAF_COMMAND,   /* has not begun, and may be put into another cgroup */
	LEAF_CONTAINER, /* has not begun, and stays where its runtime put it */
	LEAF_ATTACHING, /* runs already, and its front asks before it has any memory */
};

/* Whether strangers are in a cgroup, beside the session's processes. */
enum leaf_company {
	LEAF_ALONE,
	LEAF_SHARED,
	LEAF_UNKNOWN, /* there is too much in it to be looked at, or it cannot be read */
};

/* The facts known of the cgroup that a process of the session is in. */
struct leaf_facts {
	bool root;   /* it is the machine's own, in which everything may be */
	bool made;   /* carve made it for this session */
	bool others; /* it carries another session's limit, or one that carve did not set */
	bool fixed;  /* carved can make no cgroup on this machine */
	enum leaf_company company;
	enum leaf_asker asker;
};

/* The line for a command that is left to the front. */
#define LEAF_FIXED_TEXT                                                                 \
	"carved sees cgroups read-only (ProtectControlGroups=yes in its unit) and can " \
	"make none for a command"

enum leaf_choice {
	LEAF_TAKEN,   /* the cgroup itself carries the limit */
	LEAF_MADE,    /* a cgroup of the session's own below it carries the limit */
	LEAF_FRONT,   /* the front alone binds: the documents say so */
	LEAF_REFUSED, /* the process may not go on */
};

/* *ret_why, with FRONT and REFUSED: a line for users, static. */
enum leaf_choice leaf_choose(const struct leaf_facts *facts, const char **ret_why);

/* A user decides how many processes a cgroup has and how deep their tree is. So a look ends after
 * so many processes, so many ancestors of one process, and so many questions of the kernel. */
#define LEAF_PROCESSES_MAX 64u
#define LEAF_ANCESTORS_MAX 64u
#define LEAF_STEPS_MAX 192u

/* The questions of the kernel; each is one step. */
struct leaf_reader {
	/* 0, or -errno: that process is gone. */
	int (*identify)(void *context, pid_t pid, struct process_id *ret);
	/* False: it has no parent that is known. */
	bool (*parent)(void *context, struct process_id process, struct process_id *ret);
	void *context;
};

/* Whether all processes of `list` are among `roots` or descend from them. PID 0 is a process of
 * another PID namespace. No process is asked for twice. */
enum leaf_company leaf_company(const pid_t *list, size_t count, const struct process_id *roots,
			       size_t root_count, const struct leaf_reader *reader);

/* The limit of one cgroup. RECORDED: it is on disk, and the driver may have it. HELD: the driver
 * has it. NONE: the driver has none. The next daemon thus takes away whatever one leaves. */
enum limit_state {
	LIMIT_NONE,
	LIMIT_RECORDED,
	LIMIT_HELD,
	LIMIT_STATES,
};

enum limit_event {
	LIMIT_EVENT_RECORD,
	LIMIT_EVENT_SET,   /* the driver took it */
	LIMIT_EVENT_LAPSE, /* the driver did not take a change: what it has is not known */
	LIMIT_EVENT_CLEAR, /* the driver has none */
	LIMIT_EVENTS,
};

/* False: that cannot happen in this state. */
bool limit_next(enum limit_state from, enum limit_event event, enum limit_state *ret);
