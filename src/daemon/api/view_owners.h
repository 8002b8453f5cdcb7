/* Owners of sessions as other users see them, where `show_owners` of the configuration allows it. A
 * caller sees of another user's session the owner's name, the GPUs, the sizes and since when, and
 * nothing more. Results are owned by the caller. Loop thread. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct groups;
struct node;
struct peer;

/* Whether this viewer may see whose a session or a request is. `gid` and `groups` are the groups of
 * the owner when it asked. */
bool view_shows_owner(const struct node *node, const struct peer *viewer, uid_t owner, gid_t gid,
		      const struct groups *groups);

/* The users that hold each GPU. */
struct view_owners;
/* Goes through the sessions once. NULL: no memory; then no GPU has owners. */
struct view_owners *view_owners_read(const struct node *node, const struct peer *viewer);
/* [{owner, sessions, vram_bytes, since}] of a GPU by its position in the pool, the largest first.
 * All users whom the viewer may not see are one entry, whose owner and since are null. */
json_t *view_owners_json(const struct view_owners *owners, uint32_t gpu);
/* Takes NULL. */
void view_owners_free(struct view_owners *owners);
