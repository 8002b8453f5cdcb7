#include "daemon/settle/exempt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "daemon/host/groups.h"
#include "daemon/host/names.h"
#include "daemon/host/owner.h"

/* A process may be in 65,536 groups. Those that do not fit are not known. */
#define STATUS_SIZE 16384

void exempt_set(struct exempt *exempt, const struct exempt_names *users,
		const struct exempt_names *groups)
{
	exempt_free(exempt);
	exempt->users.names = *users;
	exempt->groups.names = *groups;
}

void exempt_free(struct exempt *exempt)
{
	for (uint32_t i = 0; i < EXEMPT_NAMES_MAX; i++)
		members_free(&exempt->members[i]);
	*exempt = (struct exempt){0};
}

static const char *ids_look(struct exempt_ids *ids, enum names_kind kind)
{
	const char *unknown = NULL;

	for (uint32_t i = 0; i < ids->names.count; i++) {
		char *end;
		unsigned long number = strtoul(ids->names.name[i], &end, 10);
		int rc = 0;

		if (!*end)
			ids->id[i] = (uint32_t)number;
		else
			rc = names_find(kind, ids->names.name[i], &ids->id[i]);
		/* While a name is looked for again, it is what it was. */
		ids->known[i] = rc == 0 || (rc == -EINPROGRESS && ids->known[i]);
		if (!ids->known[i] && !unknown)
			unknown = ids->names.name[i];
	}
	return unknown;
}

const char *exempt_look(struct exempt *exempt, bool *ret_group)
{
	const char *group = ids_look(&exempt->groups, NAMES_OF_GROUPS);
	const char *user = ids_look(&exempt->users, NAMES_OF_USERS);

	for (uint32_t i = 0; i < exempt->groups.names.count; i++)
		if (exempt->groups.known[i])
			members_look(&exempt->members[i], exempt->groups.id[i]);

	*ret_group = !user;
	return user ? user : group;
}

void exempt_unknown(const struct exempt *exempt,
		    void (*cb)(void *arg, bool group, const char *name), void *arg)
{
	for (uint32_t i = 0; i < exempt->users.names.count; i++)
		if (!exempt->users.known[i])
			cb(arg, false, exempt->users.names.name[i]);
	for (uint32_t i = 0; i < exempt->groups.names.count; i++)
		if (!exempt->groups.known[i])
			cb(arg, true, exempt->groups.names.name[i]);
}

/* Whether a line of /proc/PID/status, "KEY:\t1 2 3", has that number. */
static bool line_has(const char *text, const char *key, gid_t gid)
{
	const char *at = strstr(text, key);

	for (at = at ? at + strlen(key) : ""; *at && *at != '\n';) {
		char *end;

		if (strtoul(at, &end, 10) == gid && end != at)
			return true;
		at = end == at ? at + 1 : end;
	}
	return false;
}

static bool process_has_group(const char *status, gid_t gid)
{
	return line_has(status, "\nGid:", gid) || line_has(status, "\nGroups:", gid);
}

static bool has_user(const struct exempt *exempt, uid_t uid)
{
	uid_t owner = owner_of(uid);

	for (uint32_t i = 0; i < exempt->users.names.count; i++)
		if (exempt->users.known[i] &&
		    (exempt->users.id[i] == uid || exempt->users.id[i] == owner))
			return true;
	return false;
}

/* By the machine's own files. */
static bool has_member(const struct exempt *exempt, uint32_t i, uid_t uid)
{
	return members_have(&exempt->members[i], uid) ||
	       members_have(&exempt->members[i], owner_of(uid));
}

bool exempt_has_owner(const struct exempt *exempt, uid_t uid, gid_t gid,
		      const struct groups *groups)
{
	if (has_user(exempt, uid))
		return true;
	for (uint32_t i = 0; i < exempt->groups.names.count; i++)
		if (exempt->groups.known[i] &&
		    (exempt->groups.id[i] == gid || groups_have(groups, exempt->groups.id[i]) ||
		     has_member(exempt, i, uid)))
			return true;
	return false;
}

bool exempt_has(const struct exempt *exempt, uid_t uid, pid_t pid)
{
	char path[64], status[STATUS_SIZE] = "";

	if (has_user(exempt, uid))
		return true;
	if (!exempt->groups.names.count)
		return false;
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t size = fd < 0 ? -1 : read(fd, status, sizeof(status) - 1);
	status[size < 0 ? 0 : size] = '\0';
	for (uint32_t i = 0; i < exempt->groups.names.count; i++) {
		if (!exempt->groups.known[i])
			continue;
		if (process_has_group(status, exempt->groups.id[i]) || has_member(exempt, i, uid))
			return true;
	}
	return false;
}
