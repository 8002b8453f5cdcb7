/* The settings that are in force. The rooms get them at the start. SIGHUP has the file read anew,
 * and a copy is kept for a start whose file is wrong (config_last.h). */
#include "daemon/settings.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "daemon/config_last.h"
#include "daemon/config_notes.h"
#include "daemon/events/events.h"
#include "daemon/host/log.h"
#include "daemon/host/names.h"
#include "daemon/idle/idle.h"
#include "daemon/mig/mig.h"
#include "daemon/node.h"
#include "daemon/store/store.h"

/* The group whose members may share MIG instances. A group that is not there has no members. */
static gid_t share_group_find(const struct config *config)
{
	const char *name = config->mig_share_group;
	uint32_t group;

	if (!*name)
		return MIG_SHARE_NO_GROUP;
	if (names_id_here(NAMES_OF_GROUPS, name, &group) == 0)
		return group;
	log_event(LOG_WARNING, "config.no_group key=mig_share_group group=%s", name);
	return MIG_SHARE_NO_GROUP;
}

/* Nobody misses a group that is there by default. */
static gid_t readers_find(const struct config *config)
{
	const char *name = config->metrics.readers;
	uint32_t group;

	if (names_find_here(NAMES_OF_GROUPS, name, &group) == 0)
		return group;
	if (strcmp(name, METRICS_READERS_DEFAULT) != 0)
		log_event(LOG_WARNING, "config.no_group key=metrics.readers group=%s", name);
	return (gid_t)-1;
}

/* Requests of this user need a cookie. So a daemon whose own user this is has no door: nobody
 * could ask it for anything else. */
static bool door_find(const struct node *node, uid_t *ret)
{
	const struct web_config *web = &node->config.web;
	uint32_t uid;

	if (!web->door.listen[0])
		return false;
	if (names_id_here(NAMES_OF_USERS, web->user, &uid) < 0)
		return false; /* config_notes.c tells of it */
	if (uid == 0 || uid == geteuid()) {
		log_event(LOG_WARNING, "config.no_door key=web.user user=%s", web->user);
		return false;
	}
	*ret = uid;
	return true;
}

/* For a start with a file that is wrong by then. A system daemon may not write in its runtime
 * directory. */
static void copy_keep(struct node *node)
{
	if (!node->options.config_path)
		return;
	int rc = config_last_keep(node->options.config_path, node->state.dir);
	int other = config_last_keep(node->options.config_path, node->runtime.dir);

	node->config_kept.state = rc == 0;
	node->config_kept.runtime = other == 0;
	if (rc < 0 && other < 0)
		log_event(LOG_WARNING, "config.not_kept dir=%s error=\"%s\"", node->state.dir,
			  strerrordesc_np(-rc));
}

void settings_begin(struct node *node)
{
	store_keep_history(node->store, node->config.history_sessions,
			   node->config.history_per_minute);
	if (!node->config_wrong[0])
		snprintf(node->config_wrong, sizeof(node->config_wrong), "%s", node->state.stays);
	if (!node->config_wrong[0])
		copy_keep(node);
}

static void note_add(void *arg, const char *text)
{
	json_array_append_new(arg, json_string(text));
}

static void idle_note_add(void *arg, bool group, const char *name)
{
	char text[CONFIG_NOTE_SIZE];

	config_note_name(true, group, name, text);
	note_add(arg, text);
}

static void outside_note_add(void *arg, bool group, const char *name)
{
	char text[CONFIG_NOTE_SIZE];

	config_note_name(false, group, name, text);
	note_add(arg, text);
}

json_t *settings_notes(const struct node *node)
{
	json_t *list = node->config_notes ? json_copy(node->config_notes) : json_array();

	if (node->idle)
		exempt_unknown(idle_exempt(node->idle), idle_note_add, list);
	exempt_unknown(&node->outsiders.exempt, outside_note_add, list);
	return list;
}

void settings_spread(struct node *node)
{
	const struct config *config = &node->config;

	json_decref(node->config_notes);
	node->config_notes = json_array();
	config_notes(config, NULL, note_add, node->config_notes);
	node->pool.policy = config->placement;
	mig_place_by(node->mig, config->placement);
	mig_share_among(node->mig, share_group_find(config));
	node->health.readers = readers_find(config);
	node->door_is_there = door_find(node, &node->door_uid);
	node->quotas.defaults = config->defaults;
	node->sessions.living.most = config->living_sessions;
	node->waiting.owners_shown = config->show_owners != SHOW_OWNERS_NONE;
	node->settling.over = (struct over_setting){
		.kills = config->over_policy == OVER_KILL,
		.tolerance_bytes = config->over_tolerance_bytes,
		.after_ns = config->over_after_ns,
	};
	outsiders_set(&node->outsiders,
		      &(struct outside_setting){.kills = config->outside.policy == OUTSIDE_KILL,
						.after_ns = config->outside.after_ns},
		      &config->outside.users, &config->outside.groups);
	idle_set(node->idle, &config->times.idle, &config->times.idle_users,
		 &config->times.idle_groups);
	node->slicing.wanted = config->slicing;
	/* A user's own daemon serves that user alone. */
	node->slicing.kills = config->slicing_policy == SLICING_KILL ||
			      (config->slicing_policy == SLICING_DEFAULT && node->options.system);
}

/* The file that held until now; NULL: it is not known. From malloc. */
static char *copy_read(const struct node *node)
{
	char *text = config_last_text(node->state.dir);

	return text ? text : config_last_text(node->runtime.dir);
}

/* The keys that differ, as they were and as they are. */
static void change_record(const struct node *node, const char *last)
{
	char old[CONFIG_CHANGE_SIZE], new[CONFIG_CHANGE_SIZE];

	config_change_text(last, node->options.config_path, old, new);
	events_add(node->events, &(struct event){.kind = EVENT_CONFIG_READ,
						 .subject = node->options.config_path,
						 .before = old,
						 .after = new});
}

void settings_reload(struct node *node)
{
	struct config before = node->config;
	struct error err = {0};

	if (!node->options.config_path)
		return;
	if (config_read(node->options.config_path, &node->config, &err) < 0) {
		snprintf(node->config_wrong, sizeof(node->config_wrong), "%s%s%s", err.message,
			 err.hint[0] ? "; " : "", err.hint);
		events_add(node->events, &(struct event){.kind = EVENT_CONFIG_REFUSED,
							 .subject = node->options.config_path,
							 .text = node->config_wrong});
		return;
	}
	bool same_dir = !strcmp(before.state_dir, node->config.state_dir);
	snprintf(node->config_wrong, sizeof(node->config_wrong), "%s",
		 same_dir ? node->state.stays : "");
	cleanup_free char *last = copy_read(node);
	if (!node->config_wrong[0])
		copy_keep(node);
	if (!same_dir)
		log_event(LOG_WARNING, "config.later key=state_dir dir=%s", node->state.dir);
	store_keep_history(node->store, node->config.history_sessions,
			   node->config.history_per_minute);
	change_record(node, last);
	/* Rooms that have not started take the settings when they start. */
	if (!node->serving)
		return;
	settings_spread(node);
	slicing_reload(&node->slicing);
	/* A limit may be larger now. */
	waiting_kick(&node->waiting);
}
