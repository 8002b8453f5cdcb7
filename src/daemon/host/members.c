#include "daemon/host/members.h"

#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"

#define USERS "/etc/passwd"
#define GROUPS "/etc/group"
/* Room for one line: some 100,000 names. */
#define GROUP_SIZE (1u << 20)
#define USER_SIZE 16384

static void add(struct members *m, uid_t uid)
{
	uid_t *grown = array_grown(m->uid, m->count, &m->room, sizeof(*grown));

	if (!grown)
		return;
	m->uid = grown;
	m->uid[m->count++] = uid;
}

static bool names(const struct group *group, const char *user)
{
	for (char **name = group->gr_mem; *name; name++)
		if (!strcmp(*name, user))
			return true;
	return false;
}

/* Those whom a line of the groups' file names; NULL: those whose primary group it is. */
static void users_add(struct members *m, gid_t gid, const struct group *group)
{
	FILE *file = fopen(USERS, "re");
	struct passwd user, *u = NULL;
	char record[USER_SIZE];

	while (file && fgetpwent_r(file, &user, record, sizeof(record), &u) == 0)
		if (group ? names(group, user.pw_name) : user.pw_gid == gid)
			add(m, user.pw_uid);
	if (file)
		fclose(file);
}

static int by_number(const void *a, const void *b)
{
	const uid_t *one = a, *other = b;

	return (*one > *other) - (*one < *other);
}

static void files_read(struct members *m, gid_t gid)
{
	FILE *file = fopen(GROUPS, "re");
	char *record = malloc(GROUP_SIZE);
	struct group group, *g = NULL;

	m->count = 0;
	users_add(m, gid, NULL);
	while (file && record && fgetgrent_r(file, &group, record, GROUP_SIZE, &g) == 0)
		if (group.gr_gid == gid)
			users_add(m, gid, &group);
	if (file)
		fclose(file);
	free(record);
	if (m->count)
		qsort(m->uid, m->count, sizeof(*m->uid), by_number);
}

/* Whether the file is another one, or has other contents, than at the time *at, which is set. */
static bool changed(const char *path, struct timespec *at)
{
	struct stat st = {0};
	struct timespec before = *at;

	(void)stat(path, &st);
	*at = st.st_ctim;
	return before.tv_sec != at->tv_sec || before.tv_nsec != at->tv_nsec;
}

void members_look(struct members *m, gid_t gid)
{
	bool users = changed(USERS, &m->users), groups = changed(GROUPS, &m->groups);

	if (users || groups)
		files_read(m, gid);
}

bool members_have(const struct members *m, uid_t uid)
{
	return m->count && bsearch(&uid, m->uid, m->count, sizeof(uid), by_number);
}

void members_note(struct members *m, uid_t uid)
{
	size_t before = m->count;

	if (members_have(m, uid))
		return;
	add(m, uid);
	if (m->count > before)
		qsort(m->uid, m->count, sizeof(*m->uid), by_number);
}

void members_free(struct members *m)
{
	free(m->uid);
	*m = (struct members){0};
}
