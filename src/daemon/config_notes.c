/* The notes on a configuration. A reader of the notes wants to know what does not work, and not
 * only what is missing: each note names the key, the value, and what follows from it.
 *
 * `carved --check-config` may wait for a directory server, and may be root, who can read every
 * file. So files are looked at by a child that has become the user of the service. The daemon
 * looks at them as its own user, when it starts and with each reload. It is not the user of
 * carve-metrics or carve-web, so a file that it may not read may still be right. */
#include "daemon/config_notes.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macros.h"
#include "daemon/config.h"
#include "daemon/host/names.h"

#define METRICS_USER "carve-metrics"

struct notes {
	const char *user; /* NULL: this process is the daemon */
	config_note_cb cb;
	void *arg;
};

// NOLINTBEGIN(concurrency-mt-unsafe): the daemon's loop asks for no passwd entry here.

/* ---- names -------------------------------------------------------------------------------- */

void config_note_name(bool idle, bool group, const char *name, char ret[static CONFIG_NOTE_SIZE])
{
	snprintf(ret, CONFIG_NOTE_SIZE,
		 "%s.%s: this machine knows no %s %.64s; until it does, no %s",
		 idle ? "idle_exempt" : "outside_exempt", group ? "groups" : "users",
		 group ? "group" : "user", name,
		 idle ? "session is released for being idle" : "program outside carve is ended");
}

static bool is_known(bool group, const char *name)
{
	return name[strspn(name, "0123456789")] == '\0' ||
	       (group ? getgrnam(name) != NULL : getpwnam(name) != NULL);
}

static void names_look_at(const struct notes *n, bool idle, bool group,
			  const struct exempt_names *names)
{
	char text[CONFIG_NOTE_SIZE];

	for (uint32_t i = 0; i < names->count; i++) {
		if (is_known(group, names->name[i]))
			continue;
		config_note_name(idle, group, names->name[i], text);
		n->cb(n->arg, text);
	}
}

/* The daemon looks for these groups in the machine's own files alone. */
static void group_look_at(const struct notes *n, const char *key, const char *name,
			  const char *follows)
{
	char text[CONFIG_NOTE_SIZE];
	uint32_t group;

	if (names_id_here(NAMES_OF_GROUPS, name, &group) == 0)
		return;
	snprintf(text, sizeof(text), "%s: /etc/group has no group %.64s; until it has, %s", key,
		 name, follows);
	n->cb(n->arg, text);
}

/* ---- files -------------------------------------------------------------------------------- */

/* 0 or an errno. */
static int path_error(const char *path, int mode)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return errno;
	if (mode == R_OK && S_ISDIR(st.st_mode))
		return EISDIR;
	if (mode != R_OK && !S_ISDIR(st.st_mode))
		return ENOTDIR;
	if (access(path, mode) < 0)
		return errno;
	/* job_mapping.c refuses such a directory. */
	return mode != R_OK && (st.st_mode & 022) ? EPERM : 0;
}

/* path_error() in a child that has become that user. */
static int path_error_of(const struct passwd *user, const char *path, int mode)
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(initgroups(user->pw_name, user->pw_gid) < 0 || setgid(user->pw_gid) < 0 ||
				      setuid(user->pw_uid) < 0
			      ? 0
			      : path_error(path, mode));
	return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status)
									       : 0;
}

/* Another user's rights are not known to a process that is not root. */
static int error_of(const struct notes *n, const char *user, const char *path, int mode)
{
	const struct passwd *entry = n->user ? getpwnam(user) : NULL;
	bool other = n->user ? entry && entry->pw_uid != geteuid() : mode == R_OK;

	if (entry && geteuid() == 0)
		return path_error_of(entry, path, mode);
	int error = path_error(path, mode);
	return other && error == EACCES ? 0 : error;
}

static const struct {
	const char *key;
	size_t offset;
} files[] = {
	{"token_file", offsetof(struct door_config, token_file)},
	{"tls.cert", offsetof(struct door_config, cert)},
	{"tls.key", offsetof(struct door_config, key)},
	{"tls.client_ca", offsetof(struct door_config, client_ca)},
};

/* The files that a door of this name ("metrics", "web") reads as this user. */
static void files_look_at(const struct notes *n, const char *door, const char *user,
			  const struct door_config *config)
{
	char text[CONFIG_NOTE_SIZE];

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		const char *path = (const char *)config + files[i].offset;
		int error = *path ? error_of(n, user, path, R_OK) : 0;

		if (!error)
			continue;
		snprintf(text, sizeof(text), "%s.%s: carve-%s cannot read %.255s: %s", door,
			 files[i].key, door, path, strerrordesc_np(error));
		n->cb(n->arg, text);
	}
}

static void user_look_at(const struct notes *n, const struct web_config *web)
{
	char text[CONFIG_NOTE_SIZE];
	uint32_t user;

	if (!web->door.listen[0] || names_id_here(NAMES_OF_USERS, web->user, &user) == 0)
		return;
	snprintf(text, sizeof(text),
		 "web.user: /etc/passwd has no user %.63s; until it has, no browser is signed in",
		 web->user);
	n->cb(n->arg, text);
}

static void directory_look_at(const struct notes *n, const char *path)
{
	char text[CONFIG_NOTE_SIZE];
	int error = *path ? error_of(n, n->user, path, W_OK | X_OK) : 0;

	if (!error)
		return;
	snprintf(text, sizeof(text),
		 "metrics.job_mapping_dir: the daemon cannot write in %.255s: %s", path,
		 error == EPERM ? "other users may write there, too (chmod go-w makes it right)"
				: strerrordesc_np(error));
	n->cb(n->arg, text);
}

/* ---- the whole ---------------------------------------------------------------------------- */

void config_notes(const struct config *config, const char *user, config_note_cb cb, void *arg)
{
	const struct notes n = {.user = user, .cb = cb, .arg = arg};
	const struct metrics_config *metrics = &config->metrics;

	if (user) {
		names_look_at(&n, true, false, &config->times.idle_users);
		names_look_at(&n, true, true, &config->times.idle_groups);
		names_look_at(&n, false, false, &config->outside.users);
		names_look_at(&n, false, true, &config->outside.groups);
	}
	group_look_at(&n, "mig_share_group", config->mig_share_group,
		      "users share no MIG instances");
	/* The default group may be missing: nobody asked for it. */
	if (strcmp(metrics->readers, METRICS_READERS_DEFAULT) != 0)
		group_look_at(&n, "metrics.readers", metrics->readers,
			      "only administrators see all sessions in metrics");
	user_look_at(&n, &config->web);
	files_look_at(&n, "metrics", METRICS_USER, &metrics->door);
	files_look_at(&n, "web", config->web.user, &config->web.door);
	directory_look_at(&n, metrics->job_mapping_dir);
}

// NOLINTEND(concurrency-mt-unsafe)
