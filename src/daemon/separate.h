/* Privilege separation of a system daemon, in its worker. The worker talks to everybody. It has a
 * user of its own, and no rights from its first instruction on: systemd starts it as that user, or
 * carve's own supervisor does. Another process keeps root's rights, and made before what root alone
 * can make (daemon/prepare.h). It tells the worker of that by the first message on the link between
 * them. From then on it is the worker's warden (warden/warden.h). */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/config.h"

struct error;
struct node;
struct runtime_start;

struct separation {
	bool separated;
	char why_not[256]; /* the reason for staying root, or for having no GPUs; "": none */
};

/* The descriptors that come with the word, where their bit is set, in this order. */
enum separation_fd {
	SEPARATION_CLAIMS,      /* the directory of its claims */
	SEPARATION_CLAIMS_LOCK, /* and their lock (gpu/claims.h) */
	SEPARATION_ATTACH,      /* sockets in place of the service manager's */
	SEPARATION_HTTP,
	SEPARATION_FDS,
};

#define SEPARATION_MAGIC 0x44524f57u /* "WORD" */

/* Both are of one version, or the size differs. */
struct separation_word {
	uint32_t magic, size;
	uint32_t fds;               /* a bit for each of enum separation_fd */
	uint32_t made_anew;         /* as struct runtime has it */
	int32_t jobs_error;         /* why the warden starts no jobs: -errno; 0: it does */
	uint32_t reserved;          /* 0 */
	uint64_t host_capabilities; /* as host_root_needed() has it there */
	/* The settings, as root has read them: the file may be root's alone. `config_wrong`: why
	 * they are those of before, as struct node has it. The worker's copy of the last good
	 * settings then goes before them. */
	struct config config;
	char config_wrong[1024];
	char config_path[PATH_MAX];   /* "": none */
	char state_dir[PATH_MAX / 2]; /* it is the worker's */
	char state_stays[512];        /* as struct state has it */
	struct separation separation; /* `separated` is the worker's to say */
	char refused[512];            /* why there is to be no worker; "": there is */
};

/* Takes what the warden says of the daemon, and gives up the rest. A daemon that is no system's has
 * no warden, and its supervisor has held the directory. Where that is systemd, the daemon holds it
 * itself, as `start` has it. 0 or negative with *err. */
int separate(struct node *node, const struct runtime_start *start, struct error *err);
/* Once the lease thread runs: this one has the usual priority again. */
void separate_settle(void);
