/* Sessions as the daemon tells of them. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct client;
struct error;

/* All sessions that have not ended, and the requests that wait, however many there are: an array.
 * 0, or negative with *err. */
int sessions_get(const struct client *client, json_t **ret, struct error *err);
/* The sessions of one user that have not ended. Another user than the caller may be refused
 * (EXIT_CODE_NOT_PERMITTED). */
int sessions_get_of(const struct client *client, uid_t uid, json_t **ret, struct error *err);
/* All sessions that have not ended, with the sessions that ended before them. */
int sessions_get_all(const struct client *client, json_t **ret, struct error *err);
/* Whether an owner's name, as the daemon writes it, is this user's. */
bool session_owner_is_me(const char *owner);
/* The word that stands for the caller's current session, the one that `carve run` joins, where an
 * ID or a name may stand. */
#define SESSION_CURRENT "current"
/* Gives where a session is in the daemon's API: `id`, or where that is NULL, the caller's current
 * one, whose ID is asked for. Returns 0, or negative with *err set: no ID can look like this, or
 * the caller has no current session. */
#define SESSION_PATH_SIZE 96
int session_path(const char *id, char buf[static SESSION_PATH_SIZE], struct error *err);
int session_locate(const struct client *client, const char *id, char buf[static SESSION_PATH_SIZE],
		   struct error *err);
/* The session that a verb means: `id`. Where that is NULL and this process is in a slice of this
 * daemon's, it is the slice's; else NULL, which is the caller's current one. */
const char *session_meant(const struct client *client, const char *id);
/* Looks at a session; NULL: the caller's current one. *ret is owned by the caller. */
int session_get(const struct client *client, const char *id, json_t **ret, struct error *err);
/* Says that the session is not active: when and why it ended, or its reason to wait. Returns
 * -EXIT_CODE_FAILED. */
int session_inactive(const json_t *session, struct error *err);
/* Why one waits, or where it was granted: the object that `carve explain ID --json` prints. Both
 * are owned by the caller, also on failure, where they may be NULL. */
int session_explain(const struct client *client, const char *id, json_t **ret_session,
		    json_t **ret_explanation, struct error *err);
/* Ends a session that nobody is to miss. A failure is not told: the daemon ends an ephemeral
 * with its processes anyway. */
void session_give_back(const struct client *client, const char *id);

/* A text of any object, "" where there is none; for people, "-" where there is none. */
const char *session_text(const json_t *object, const char *key);
const char *session_text_or_dash(const json_t *object, const char *key);
/* A session's name, for people; "(current)" for its owner's current session, which has none. */
const char *session_name_text(const json_t *session);
uint64_t session_number(const json_t *object, const char *key);
/* Sum of a number over the session's GPUs. */
uint64_t session_gpus_sum(const json_t *session, const char *key);
/* "0,2,5-7", as --gpu-ids takes them; cut off where there is no room. */
void session_indexes_text(const json_t *list, char *buf, size_t size);
/* "GPU 0", "GPUs 0,1", "no GPU". Returns buf, or a literal. */
#define SESSION_GPUS_SIZE 256
const char *session_gpus_text(const json_t *session, char buf[static SESSION_GPUS_SIZE]);
/* "4 GiB", of each of its GPUs; "3.69 GiB-19.78 GiB" where these differ. Returns buf. */
#define SESSION_SIZE_SIZE 96
const char *session_size_text(const json_t *session, char buf[static SESSION_SIZE_SIZE]);
