/* Handlers of one session: what it is, and a request for a new one. */
#pragma once

struct call;
struct error;
struct session;
struct waiter;

/* GET /v1/sessions/ID, also of a request that waits and of a session that has ended. */
void api_get_session(struct call *call, const char *id);
/* POST /v1/sessions. Answered when the request is decided. */
void api_post_session(struct call *call, const char *id);

/* The session of the path that the caller may change; NULL: answered. */
struct session *api_session_or_reply(struct call *call, const char *id);
/* Answers with the session and that status of HTTP; NULL: with *err. */
void api_session_reply(struct call *call, unsigned status, const struct session *session,
		       const struct error *err);
/* The request that waits under this ID, or under this name of the caller's; NULL: none. */
struct waiter *api_session_waiter(const struct call *call, const char *id);
/* For call_defer(): the caller hung up, so its request that waits is dropped. */
void api_session_asker_gone(struct call *call);
