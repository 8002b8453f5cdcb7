/* Upgrade in place: the daemon becomes another carved. The process stays, and with it the sockets,
 * the connections, the locks and the ledgers' descriptors (handover.h); the sessions are in the
 * database. Nobody is refused meanwhile: who asks waits for a moment.
 *
 * `carved --takeover` asks for it (POST /v1/upgrade, for the daemon's own user and root). The new
 * program is run once beforehand, with --takeover-check, to say that it understands the handover,
 * the configuration and the database. Then the daemon waits for a moment in which no call is half
 * received or half answered, and execs. */
#pragma once

#include <stdbool.h>

struct call;
struct error;
struct node;
struct upgrade;

/* Answers POST /v1/upgrade: an object with `program`, an absolute path. */
void upgrade_post(struct call *call, const char *id);
/* Nobody asks: it becomes its own program anew, as it would start now. */
void upgrade_renew(struct node *node);
/* Becomes the new program, if one was asked for and this is the moment. Called before the loop
 * sleeps. Returns where it is not. */
void upgrade_run(struct node *node);
/* Looks whether it takes too long. Called on each tick. */
bool upgrade_pending(const struct node *node);
/* The daemon stops: forgets it. */
void upgrade_stop(struct node *node);

/* The whole of `carved --takeover-check VERSION`: whether this program can follow on a daemon that
 * leaves a handover of this version in the directories of `node`. Prints UPGRADE_CHECKED; returns
 * the exit code. */
#define UPGRADE_CHECKED "carved can take over\n"
int upgrade_check(const char *version, const struct node *node, struct error *err);
/* The whole of `carved --takeover`: asks the daemon in `dir` to become this program. Returns the
 * exit code. */
int upgrade_ask(const char *dir, struct error *err);
