#include "base/acl.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

/* The kernel's form (linux/posix_acl_xattr.h): a version, then entries in the order of their tags,
 * and those of one tag in the order of their IDs. All numbers are little-endian. */
#define VERSION 2u
#define ID_NONE UINT32_MAX

enum tag {
	TAG_USER_OBJ = 0x01,
	TAG_USER = 0x02,
	TAG_GROUP_OBJ = 0x04,
	TAG_GROUP = 0x08,
	TAG_MASK = 0x10,
	TAG_OTHER = 0x20,
};

struct entry {
	uint16_t tag, permissions;
	uint32_t id;
};

_Static_assert(sizeof(struct entry) == 8, "an entry is the kernel's");

static size_t count_of(size_t size)
{
	return size < sizeof(uint32_t) ? 0 : (size - sizeof(uint32_t)) / sizeof(struct entry);
}

static struct entry entry_at(const void *acl, size_t i)
{
	struct entry e;

	memcpy(&e, (const char *)acl + sizeof(uint32_t) + i * sizeof(e), sizeof(e));
	return e;
}

bool acl_is_whole(const void *acl, size_t size)
{
	uint32_t version;

	if (size == 0)
		return true;
	if (size < sizeof(version) || (size - sizeof(version)) % sizeof(struct entry))
		return false;
	memcpy(&version, acl, sizeof(version));
	return version == VERSION;
}

bool acl_next_user(const void *acl, size_t size, size_t *at, struct acl_user *ret)
{
	if (!acl_is_whole(acl, size))
		return false;
	while (*at < count_of(size)) {
		struct entry e = entry_at(acl, (*at)++);

		if (e.tag != TAG_USER)
			continue;
		*ret = (struct acl_user){.uid = e.id, .permissions = e.permissions};
		return true;
	}
	return false;
}

struct writer {
	char *to;
	size_t used, room;
	bool full;
};

static void put(struct writer *w, struct entry e)
{
	w->full |= w->used + sizeof(e) > w->room;
	if (w->full)
		return;
	memcpy(w->to + w->used, &e, sizeof(e));
	w->used += sizeof(e);
}

/* The entries that a file has by its mode alone. */
static struct entry entry_of_mode(mode_t mode, enum tag tag)
{
	unsigned shift = tag == TAG_USER_OBJ ? 6 : tag == TAG_GROUP_OBJ ? 3 : 0;

	return (struct entry){
		.tag = (uint16_t)tag, .permissions = (uint16_t)(mode >> shift & 7), .id = ID_NONE};
}

/* The entry of that tag; of a list without one, what the mode says. */
static struct entry only_entry(const void *acl, size_t size, mode_t mode, enum tag tag)
{
	for (size_t i = 0; i < count_of(size); i++)
		if (entry_at(acl, i).tag == tag)
			return entry_at(acl, i);
	return entry_of_mode(mode, tag);
}

/* The named entries of one tag, with the new one in its place. */
static unsigned named_put(struct writer *w, const void *acl, size_t size, enum tag tag,
			  const struct acl_user *user)
{
	bool due = user && user->permissions;
	unsigned count = 0;

	for (size_t i = 0; i <= count_of(size); i++) {
		bool end = i == count_of(size);
		struct entry e = end ? (struct entry){0} : entry_at(acl, i);

		if (!end && e.tag != tag)
			continue;
		if (due && (end || e.id >= user->uid)) {
			put(w, (struct entry){.tag = (uint16_t)tag,
					      .permissions = (uint16_t)user->permissions,
					      .id = user->uid});
			due = false;
			count++;
		}
		if (end || (user && e.id == user->uid))
			continue;
		put(w, e);
		count++;
	}
	return count;
}

ssize_t acl_set_user(const void *acl, size_t size, mode_t mode, const struct acl_user *user,
		     void *ret, size_t room)
{
	struct writer w = {.to = ret, .used = sizeof(uint32_t), .room = room};
	uint32_t version = VERSION;

	if (!acl_is_whole(acl, size))
		return -EINVAL;
	if (room < sizeof(version))
		return -ENOSPC;
	memcpy(ret, &version, sizeof(version));
	struct entry group = only_entry(acl, size, mode, TAG_GROUP_OBJ);
	struct entry mask = only_entry(acl, size, mode, TAG_MASK);
	/* The group's bits of the mode are the mask's where there is a list. */
	unsigned bound = (size ? mask.permissions : group.permissions) | (user->permissions & 6);

	put(&w, only_entry(acl, size, mode, TAG_USER_OBJ));
	unsigned named = named_put(&w, acl, size, TAG_USER, user);
	put(&w, group);
	named += named_put(&w, acl, size, TAG_GROUP, NULL);
	if (named)
		put(&w,
		    (struct entry){.tag = TAG_MASK, .permissions = (uint16_t)bound, .id = ID_NONE});
	put(&w, only_entry(acl, size, mode, TAG_OTHER));
	return w.full ? -ENOSPC : (ssize_t)w.used;
}
