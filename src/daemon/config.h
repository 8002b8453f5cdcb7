/* The daemon's configuration file: JSON, every key optional, unknown ones refused. With examples:
 *
 * - "over_policy": "report": what becomes of a session that holds more than its slice, by the
 *   driver's figures: "report" (shown and logged), or "kill": its processes are killed
 * - "over_tolerance": "64MiB": so much more is nothing, in MiB or GiB
 * - "over_seconds": 3: and it has to last so long
 * - "history_sessions": 50000: ended sessions that are kept for `session list --all`
 * - "history_per_minute": 600: and of these so many of one user that end within a minute
 * - "living_sessions": 4096: sessions at a time; one user has half of what others leave
 * - "living_jobs": 4000000: jobs that have not ended, likewise; a request counts for some ten more,
 *   and its text for one more each 400 bytes
 * - "job_tasks": 10000: processes and threads of each job that a system daemon starts; else a third
 *   of what the machine can have; read when the launcher starts
 * - "history_jobs": 1000000: ended jobs that are kept, with their logs
 * - "history_text_mib": 1024: and so many MiB of their requests: environments and commands
 * - "state_dir": "/var/lib/carve": where sessions, quotas and history are kept (state.h); read when
 *   the daemon starts
 * - "slicing_policy": "kill": the answer to processes that open their gate, or use a sliced GPU
 *   without the front. "report": their user has no turns for a while. "kill": they are killed, too.
 *   By default a system daemon kills, and a user's own daemon reports
 * - "outside_policy": "report": what becomes of programs outside carve: "report" (listed and
 * logged), or "kill": a system daemon ends those of ordinary users (settle/outsiders.h)
 * - "outside_seconds": 10: when they have been on a GPU for so long
 * - "outside_exempt": {"users": ["ci"], "groups": ["video"]}: whose programs are left alone
 * - "mig_share_group": "mates": the members of this group may share MIG instances with each other
 *   (`--mig-share`); a name of /etc/group, or a number. By default only sessions of one user may
 * - "metrics": {"listen": "127.0.0.1:9400"}: where Prometheus reads (metrics/metrics_config.h)
 * - "web": {"listen": "127.0.0.1:9480"}: where browsers see the page (doors/web_config.h)
 * - "show_owners": "group": whose sessions others see the owner of: "none", "group" (of users who
 * are in a group of the caller's, too), or "all"
 * - "placement": "spread": which of several GPUs a request gets (core/place.h): "pack", the
 * fullest, or "spread", the emptiest. By default "pack"
 * - "defaults": {"vram": "16GiB", "sessions": 2, "gpus": 1}: the limits of each user. A quota of
 * the user, of each member of a group, or of everyone goes before (core/quota.h)
 * - "session_timeout_default": "8h": the time-out of a session whose request names none, and
 *   "session_timeout_max": "24h": the longest; texts with a unit, or numbers of seconds; 0: none
 * - "job_time_default", "job_time_max": likewise the time limit of jobs
 * - "idle_timeout": "2h": a session whose programs used no GPU time for so long is released; 0:
 *   none is. "idle_warning": "10m": the user is warned so long before; by default a tenth of that
 *   time, at most 10 minutes. "idle_exempt": {"users": ["alice"], "groups": ["lab"]}: not those
 * - "timeSlicing": {"mode": "fair", "lease": "250ms", "granularity": "5%"}: for GPUs that nobody
 * set with `carve timeslicing`; also as {"global": {"core": {"timeSlicing": {...}}}}
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "core/idle.h"
#include "core/lease.h"
#include "core/place.h"
#include "core/quota.h"
#include "core/time_limits.h"
#include "daemon/doors/web_config.h"
#include "daemon/metrics/metrics_config.h"
#include "daemon/settle/exempt.h"

struct error;

/* Bytes of a file, its end included: it has a dozen keys. */
#define CONFIG_SIZE_MAX 65536

/* Room for the name of a group. */
#define CONFIG_NAME_SIZE 64

enum over_policy { OVER_REPORT, OVER_KILL };
enum outside_policy { OUTSIDE_REPORT, OUTSIDE_KILL };
/* Whether users see whose the sessions of others are: of nobody, of users with whom they share a
 * group, or of all. */
enum show_owners { SHOW_OWNERS_NONE, SHOW_OWNERS_GROUP, SHOW_OWNERS_ALL };
/* DEFAULT: a system daemon kills, a user's own reports. */
enum slicing_policy { SLICING_REPORT, SLICING_KILL, SLICING_DEFAULT };

/* Programs outside carve. */
struct config_outside {
	enum outside_policy policy;
	uint64_t after_ns;
	struct exempt_names users, groups;
};

struct config_times {
	struct time_limits session, job;
	struct idle_policy idle;
	struct exempt_names idle_users, idle_groups; /* the idle policy spares them */
};

/* At the same time. More than the slices of 16 GPUs with 80 GB: a context alone takes some 500 MB.
 */
#define LIVING_SESSIONS_DEFAULT 4096

struct config {
	enum over_policy over_policy;
	uint64_t over_tolerance_bytes;
	uint64_t over_after_ns;
	uint32_t history_sessions, history_per_minute, history_jobs, history_text_mib;
	uint32_t living_sessions, living_jobs;
	uint32_t job_tasks;                     /* 0: none are named */
	char state_dir[512];                    /* "": none is named */
	char mig_share_group[CONFIG_NAME_SIZE]; /* "": none is named */
	enum slicing_policy slicing_policy;
	enum show_owners show_owners;
	enum place_policy placement;
	struct lease_setting slicing;
	struct metrics_config metrics;
	struct web_config web;
	struct config_outside outside;
	struct quota defaults; /* for each user */
	struct config_times times;
};

/* The members of the table of keys in config.c whose values take more than a word or a number
 * (config_outside.c, config_times.c). */
struct json_t;
int config_take_outside_seconds(const struct json_t *value, void *record, struct error *err);
int config_take_outside_exempt(const struct json_t *value, void *record, struct error *err);
int config_take_session_default(const struct json_t *value, void *record, struct error *err);
int config_take_session_max(const struct json_t *value, void *record, struct error *err);
int config_take_job_default(const struct json_t *value, void *record, struct error *err);
int config_take_job_max(const struct json_t *value, void *record, struct error *err);
int config_take_idle_timeout(const struct json_t *value, void *record, struct error *err);
int config_take_idle_warning(const struct json_t *value, void *record, struct error *err);
int config_take_idle_exempt(const struct json_t *value, void *record, struct error *err);
/* The users and groups of a list of exemptions, {"users": [...], "groups": [...]}, whose key is
 * `name`. 0, or negative with *err. */
int config_exempt_take(const char *name, const struct json_t *value, struct exempt_names *users,
		       struct exempt_names *groups, struct error *err);
/* Whether defaults and longest times contradict each other. 0, or negative with *err. */
int config_times_agree(const struct config_times *times, struct error *err);

/* The settings without a file. */
extern const struct config config_default;

/* Reads a text. 0; negative with *err saying which key or line is wrong, *ret as it was. */
int config_parse(const char *text, size_t size, struct config *ret, struct error *err);
/* Reads a file. 0; negative with *err saying which key or line is wrong, *ret as it was. */
int config_read(const char *path, struct config *ret, struct error *err);
