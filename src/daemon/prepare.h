/* The preparation of a system daemon's worker, which takes root: its user, directories, claims,
 * settings and its warden. It is done by carve's own supervisor, and under systemd by the warden,
 * which is a service of its own. */
#pragma once

#include <stdbool.h>

struct error;
struct node;
struct warden;
struct worker_preparation;
struct worker_user;

/* The worker's user, where there is one. */
#define PREPARE_USER "carve"

/* Whether this is root's system daemon. */
bool prepare_wanted(const struct node *node);
/* The user that its worker is to be: that of --user; else PREPARE_USER, or where there is none a
 * free ID (WARDEN_ID_FIRST). Further groups are not looked for. 0 or negative with *err. */
int prepare_user(const struct node *node, struct worker_user *ret, struct error *err);
/* Begins: has a child process ask whether that user may use the driver, and the rest that it needs.
 * The answer comes within 40 s, even of a driver that hangs. 0 or negative with *err. */
int prepare_ask(const struct node *node, struct worker_preparation *ret, struct error *err);
/* Closes the descriptor. The child ends by itself. */
void prepare_forget(struct worker_preparation *preparation);
/* Once there is an answer: prepares all of it, and gives the worker its word (daemon/separate.h) by
 * `link_fd`. That is the warden's end of the link, and the warden's own if 0 is returned. The
 * directory is held already (runtime_hold()). *warden: the one that this process hosts, or NULL.
 * The preparation says afterwards whom the worker is to become. It stays root, with a word in the
 * log, where its user has no access to what it needs. Under systemd, which has started it as that
 * user, there is no worker then, or one that has no GPUs. 0 or negative with *err. */
int prepare(struct node *node, struct warden **warden, int link_fd,
	    struct worker_preparation *preparation, struct error *err);
/* Tells a worker that there is to be none. */
void prepare_refuse(int link_fd, const struct error *err);
