#include "daemon/api/api_door.h"

#include <errno.h>
#include <limits.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/macros.h"
#include "core/sign_in.h"
#include "daemon/api/answer.h"
#include "daemon/api/browser.h"
#include "daemon/api/http.h"
#include "daemon/api/view.h"
#include "daemon/host/log.h"
#include "daemon/host/owner.h"
#include "daemon/host/peer.h"
#include "daemon/node.h"

#define DOOR_PATH "/v1/web/door"
/* 192 random bits, in hexadecimal. */
#define SECRET_BYTES ((size_t)24)
#define SECRET_SIZE (2 * SECRET_BYTES + 1)
/* A link is used at once. A browser is signed in for a working day, and is closed in the evening.
 */
#define LINK_S 60u
#define BROWSER_S (12u * 3600u)
#define NANOSECONDS 1000000000ull
/* The most that one user has at a time. Four fill a table with 256 users. */
#define LINKS_MOST 4u
#define BROWSERS_MOST 4u

_Static_assert(SHA256_DIGEST_LENGTH == SIGN_IN_DIGEST_SIZE, "digests are SHA-256");

/* The users of a table of secrets, by the secrets' places. */
struct secrets {
	struct sign_in_table table;
	struct peer *user[SIGN_IN_ROOM]; /* owned */
};

static struct secrets links = {.table = {.most = LINKS_MOST, .lasts_ns = LINK_S * NANOSECONDS}};
static struct secrets browsers = {
	.table = {.most = BROWSERS_MOST, .lasts_ns = (uint64_t)BROWSER_S * NANOSECONDS}};

/* ---- secrets ------------------------------------------------------------------------------- */

static int secret_draw(char ret[static SECRET_SIZE])
{
	unsigned char random[SECRET_BYTES];

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return -EIO;
	for (size_t i = 0; i < SECRET_BYTES; i++)
		snprintf(ret + 2 * i, 3, "%02x", random[i]);
	return 0;
}

static void digest_make(const char *secret, unsigned char ret[static SIGN_IN_DIGEST_SIZE])
{
	SHA256((const unsigned char *)secret, strlen(secret), ret);
}

/* A new secret of this user. 0 or -errno. */
static int secret_add(struct secrets *secrets, const struct peer *user,
		      char ret[static SECRET_SIZE])
{
	unsigned char digest[SIGN_IN_DIGEST_SIZE];
	struct peer *copy = malloc(sizeof(*copy));

	if (!copy || secret_draw(ret) < 0) {
		free(copy);
		return copy ? -EIO : -ENOMEM;
	}
	*copy = *user;
	copy->process = (struct process_id){0};
	digest_make(ret, digest);
	int place = sign_in_add(&secrets->table, digest, user->uid, owner_of(user->uid),
				now_monotonic_ns());
	if (place < 0) {
		free(copy);
		return place;
	}
	free(secrets->user[place]);
	secrets->user[place] = copy;
	return 0;
}

/* The place of a secret, or negative. */
static int secret_find(const struct secrets *secrets, const char *secret)
{
	unsigned char digest[SIGN_IN_DIGEST_SIZE];

	digest_make(secret, digest);
	return sign_in_find(&secrets->table, digest, now_monotonic_ns());
}

/* ---- where the door is --------------------------------------------------------------------- */

static bool has_tls(const struct node *node)
{
	return node->config.web.door.cert[0];
}

static void host_name(char ret[static HOST_NAME_MAX + 1])
{
	ret[0] = ret[HOST_NAME_MAX] = '\0';
	(void)gethostname(ret, HOST_NAME_MAX);
}

/* The name in links. */
static void door_name(const struct node *node, char ret[static WEB_NAME_SIZE])
{
	const struct web_config *web = &node->config.web;
	char host[HOST_NAME_MAX + 1];

	host_name(host);
	snprintf(ret, WEB_NAME_SIZE, "%s",
		 web->name[0]                         ? web->name
		 : door_config_is_outside(&web->door) ? host
						      : "localhost");
}

/* Browsers have one box of cookies for all ports of a host. So localhost has a cookie for each host
 * that ports of localhost lead to. With TLS the name's beginning has browsers take the cookie from
 * this host alone. */
static void cookie_name(const struct node *node, char ret[static WEB_NAME_SIZE])
{
	char host[HOST_NAME_MAX + 1];

	host_name(host);
	for (char *c = host; *c; c++)
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-", *c))
			*c = '_';
	snprintf(ret, WEB_NAME_SIZE, "%scarve-%s", has_tls(node) ? "__Host-" : "", host);
}

/* ---- at the Unix socket -------------------------------------------------------------------- */

static bool door_or_answer(struct call *call)
{
	struct error err = {0};

	if (call->node->door_is_there)
		return true;
	error_set(&err, EXIT_CODE_FAILED, "this daemon serves its page at its Unix socket alone");
	error_hint(&err, "/usr/share/doc/carve/user/web.md says how ssh leads there, and how an "
			 "administrator sets "
			 "web.listen");
	call_reply_error(call, HTTP_STATUS_CONFLICT, &err);
	return false;
}

void api_post_web_link(struct call *call, const char *unused)
{
	const struct node *node = call->node;
	char secret[SECRET_SIZE], name[WEB_NAME_SIZE];

	if (!door_or_answer(call))
		return;
	int rc = secret_add(&links, &call->peer, secret);
	if (rc < 0) {
		answer_failed(call, HTTP_STATUS_SERVICE_UNAVAILABLE, EXIT_CODE_FAILED,
			      "no link can be made now: %s",
			      rc == -ENOSPC ? "too many users have one" : strerrordesc_np(-rc));
		return;
	}
	struct timespec now;
	(void)clock_gettime(CLOCK_REALTIME, &now);
	door_name(node, name);
	call_reply(call, HTTP_STATUS_CREATED,
		   json_pack("{s:o, s:o}", "url",
			     json_sprintf("%s://%s%s/?token=%s", has_tls(node) ? "https" : "http",
					  name, strrchr(node->config.web.door.listen, ':'), secret),
			     "expires",
			     view_time(((int64_t)now.tv_sec + LINK_S) * (int64_t)NANOSECONDS)));
}

static unsigned user_remove(struct secrets *secrets, uid_t uid)
{
	return sign_in_remove_user(&secrets->table, uid, now_monotonic_ns());
}

void api_delete_web_browsers(struct call *call, const char *unused)
{
	unsigned ended = user_remove(&browsers, call->peer.uid);

	(void)user_remove(&links, call->peer.uid);
	log_event(LOG_INFO, "web.signed_out uid=%u browsers=%u", (unsigned)call->peer.uid, ended);
	call_reply(call, HTTP_STATUS_OK, json_pack("{s:i}", "ended", (int)ended));
}

void api_get_door(struct call *call, const char *unused)
{
	const struct node *node = call->node;

	if (!node->door_is_there || call->peer.uid != node->door_uid) {
		answer_failed(call, HTTP_STATUS_FORBIDDEN, EXIT_CODE_NOT_PERMITTED,
			      "user %u is not web.user of this daemon's configuration",
			      (unsigned)call->peer.uid);
		return;
	}
	call->door = true;
	call_reply(call, HTTP_STATUS_OK, json_pack("{s:b}", "door", true));
}

/* ---- through the door ---------------------------------------------------------------------- */

bool api_door_is(const struct call *call)
{
	return call->door || (call->node->door_is_there && call->peer.uid == call->node->door_uid);
}

static void sign_in_page_reply(struct call *call, const char *why)
{
	static const struct call_form form = {
		"text/html; charset=utf-8",
		"Content-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n"
		"X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
		"Cache-Control: no-store\r\n"};
	char text[512];

	snprintf(text, sizeof(text),
		 "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n"
		 "<meta name=\"viewport\" content=\"width=device-width\">\n<title>carve</title>\n"
		 "<h1>carve</h1>\n<p>%s</p>\n<p>Type <code>carve web</code> on this host, and open "
		 "the link that it prints.</p>\n</html>\n",
		 why);
	call_reply_as(call, HTTP_STATUS_UNAUTHORIZED, &form, strdup(text));
}

/* The page's own requests get JSON, as the page tells the user. */
static void unknown_reply(struct call *call)
{
	struct error err = {0};

	if (strncmp(call->path, "/v1/", 4) != 0) {
		sign_in_page_reply(call, "This browser is not signed in.");
		return;
	}
	error_set(&err, EXIT_CODE_NOT_PERMITTED, "this browser is not signed in");
	error_hint(&err, "type `carve web` on this host, and open the link that it prints");
	call_reply_error(call, HTTP_STATUS_UNAUTHORIZED, &err);
}

/* The redirect takes the secret out of the browser's address bar. */
static void sign_in(struct call *call, const char *token)
{
	int link = secret_find(&links, token);
	char secret[SECRET_SIZE], cookie[WEB_NAME_SIZE], fields[512];

	if (link < 0) {
		sign_in_page_reply(call, "This link was used before, or is older than a minute.");
		return;
	}
	const struct peer *user = links.user[link];
	sign_in_remove(&links.table, link);
	if (secret_add(&browsers, user, secret) < 0) {
		answer_failed(call, HTTP_STATUS_SERVICE_UNAVAILABLE, EXIT_CODE_FAILED,
			      "too many users are signed in");
		return;
	}
	log_event(LOG_INFO, "web.signed_in uid=%u", (unsigned)user->uid);
	cookie_name(call->node, cookie);
	snprintf(fields, sizeof(fields),
		 "Location: /\r\nSet-Cookie: %s=%s; Path=/; Max-Age=%u; HttpOnly; "
		 "SameSite=Strict%s\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-store\r\n",
		 cookie, secret, BROWSER_S, has_tls(call->node) ? "; Secure" : "");
	call_reply_as(call, HTTP_STATUS_SEE_OTHER, &(struct call_form){"text/plain", fields},
		      strdup(""));
}

/* The value of a cookie: "a=1; NAME=VALUE; b=2". False: there is none that a secret could be. */
static bool cookie_value(const char *cookies, const char *name, char ret[static SECRET_SIZE])
{
	size_t size = strlen(name);

	for (const char *at = cookies; at && *at; at += strcspn(at, ";")) {
		at += strspn(at, "; \t");
		if (strncmp(at, name, size) != 0 || at[size] != '=')
			continue;
		at += size + 1;
		if (strspn(at, "0123456789abcdef") != SECRET_SIZE - 1)
			continue;
		snprintf(ret, SECRET_SIZE, "%s", at);
		return true;
	}
	return false;
}

/* The user who is signed in; NULL: nobody. */
static const struct peer *user_find(const struct call *call)
{
	char name[WEB_NAME_SIZE], secret[SECRET_SIZE];

	cookie_name(call->node, name);
	if (!cookie_value(call_field(call, HTTP_FIELD_COOKIE), name, secret))
		return NULL;
	int browser = secret_find(&browsers, secret);
	return browser < 0 ? NULL : browsers.user[browser];
}

bool api_door_enter(struct call *call)
{
	const struct browser_fields fields = {.host = call_field(call, HTTP_FIELD_HOST),
					      .origin = call_field(call, HTTP_FIELD_ORIGIN),
					      .site = call_field(call, HTTP_FIELD_SITE)};
	char name[WEB_NAME_SIZE];

	if (!call->door && !strcmp(call->method, "GET") && !strcmp(call->path, DOOR_PATH)) {
		api_get_door(call, "");
		return false;
	}
	door_name(call->node, name);
	const char *refusal = browser_door_refusal(&fields, call->method, name);
	const char *token = call_argument(call, "token");
	if (refusal) {
		answer_failed(call, HTTP_STATUS_FORBIDDEN, EXIT_CODE_NOT_PERMITTED, "%s", refusal);
		return false;
	}
	if (token && !strcmp(call->path, "/")) {
		sign_in(call, token);
		return false;
	}
	const struct peer *user = user_find(call);
	if (!user) {
		unknown_reply(call);
		return false;
	}
	call->peer = *user;
	call->looks = true;
	return true;
}
