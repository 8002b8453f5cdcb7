#include "daemon/doors/web_config.h"

#include <string.h>

#include "base/error.h"
#include "base/record_json.h"

#define TLS_TAKES "{\"cert\": FILE, \"key\": FILE}"

const struct web_config web_config_default = {.user = WEB_USER_DEFAULT};

/* It stands in addresses, and in the name of a cookie. */
static bool name_valid(const char *text)
{
	return *text && strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				     "0123456789.-") == strlen(text);
}

/* Requests of this user need a cookie. So root would be locked out, and a door that is root's
 * would have its rights. */
static bool user_valid(const char *text)
{
	return *text && strcmp(text, "root") != 0 && strspn(text, "0") != strlen(text);
}

#define FIELD(member, name, ...) RECORD_FIELD(struct web_config, member, name, __VA_ARGS__)
#define FILE_FIELD(member, name, example)             \
	FIELD(member, name, .valid = door_path_valid, \
	      .takes = "an absolute path such as \"" example "\"")

static const struct record_field tls_fields[] = {
	FILE_FIELD(door.cert, "cert", "/etc/carve/web.crt"),
	FILE_FIELD(door.key, "key", "/etc/carve/web.key"),
	{0},
};

static int take_tls(const json_t *value, void *record, struct error *err)
{
	const struct web_config *to = record;

	if (!json_is_object(value))
		return error_set(err, EXIT_CODE_USAGE, "web.tls takes " TLS_TAKES);
	int rc = record_take_object(tls_fields, "web.tls", value, record, err);
	if (rc == 0 && (!to->door.cert[0] || !to->door.key[0]))
		rc = error_set(err, EXIT_CODE_USAGE, "web.tls lacks %s: it takes " TLS_TAKES,
			       to->door.cert[0] ? "key" : "cert");
	return rc;
}

static const struct record_field fields[] = {
	FIELD(door.listen, "listen", .valid = door_listen_valid, .takes = DOOR_LISTEN_TAKES),
	{"tls", .take = take_tls},
	FIELD(name, "name", .valid = name_valid,
	      .takes = "a host name such as \"gpu1.example.org\""),
	FIELD(user, "user", .valid = user_valid,
	      .takes = "the name or the number of a user of its own, not root"),
	{0},
};

int web_config_read(const json_t *value, struct web_config *ret, struct error *err)
{
	struct web_config config = web_config_default;

	if (!json_is_object(value))
		return error_set(err, EXIT_CODE_USAGE,
				 "web takes an object such as {\"listen\": \"127.0.0.1:9480\"}");
	int rc = record_take_object(fields, "web", value, &config, err);
	if (rc == 0)
		rc = door_config_agrees(&config.door, "web", TLS_TAKES, err);
	if (rc == 0)
		*ret = config;
	return rc;
}
