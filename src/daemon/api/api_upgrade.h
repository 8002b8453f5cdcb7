/* POST /v1/upgrade: an upgrade of this daemon (upgrade.h), which `carved --takeover` asks for. */
#pragma once

struct call;
struct node;

/* Takes an object with `program`, the absolute path of the daemon's program. A daemon that can be
 * upgraded ends without an answer. */
void api_upgrade_post(struct call *call, const char *id);
/* The daemon stops: forgets the upgrade. */
void api_upgrade_stop(struct node *node);
