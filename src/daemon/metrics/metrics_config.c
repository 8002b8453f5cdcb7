#include "daemon/metrics/metrics_config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/record_json.h"

#define LISTEN_TAKES "an address and a port such as \"127.0.0.1:9400\" or \"[::1]:9400\""
#define TLS_TAKES "{\"cert\": FILE, \"key\": FILE, \"client_ca\": FILE}"

const struct metrics_config metrics_config_default = {.readers = METRICS_READERS_DEFAULT};

/* ---- addresses --------------------------------------------------------------------------- */

/* 0: it is none. */
static in_port_t port_parse(const char *text)
{
	unsigned long port = 0;

	if (strlen(text) > 5 || !*text || strspn(text, "0123456789") != strlen(text))
		return 0;
	port = strtoul(text, NULL, 10);
	return port <= 65535 ? htons((in_port_t)port) : 0;
}

int metrics_address(const char *listen, struct sockaddr_storage *ret, socklen_t *ret_size)
{
	char host[64];
	const char *colon = strrchr(listen, ':');
	bool six = *listen == '[';
	size_t size = colon ? (size_t)(colon - listen) : 0;
	struct sockaddr_in in = {.sin_family = AF_INET};
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};

	if (six && (size < 3 || listen[size - 1] != ']'))
		return -EINVAL;
	if (!size || size >= sizeof(host))
		return -EINVAL;
	snprintf(host, sizeof(host), "%.*s", (int)(six ? size - 2 : size),
		 six ? listen + 1 : listen);
	in.sin_port = in6.sin6_port = port_parse(colon + 1);
	if (!in.sin_port || inet_pton(six ? AF_INET6 : AF_INET, host,
				      six ? (void *)&in6.sin6_addr : (void *)&in.sin_addr) != 1)
		return -EINVAL;
	memset(ret, 0, sizeof(*ret));
	*ret_size = six ? sizeof(in6) : sizeof(in);
	memcpy(ret, six ? (void *)&in6 : (void *)&in, *ret_size);
	return 0;
}

bool metrics_address_is_loopback(const struct sockaddr_storage *address)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)address;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)address;

	if (address->ss_family == AF_INET)
		return ntohl(in->sin_addr.s_addr) >> 24 == 127;
	return IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr) ||
	       (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr) && in6->sin6_addr.s6_addr[12] == 127);
}

/* ---- the key ----------------------------------------------------------------------------- */

static bool listen_valid(const char *text)
{
	struct sockaddr_storage address;
	socklen_t size;

	return metrics_address(text, &address, &size) == 0;
}

static bool path_valid(const char *text)
{
	return *text == '/';
}

static bool name_valid(const char *text)
{
	return *text;
}

#define FIELD(member, name, ...) RECORD_FIELD(struct metrics_config, member, name, __VA_ARGS__)
#define FILE_FIELD(member, name, example)        \
	FIELD(member, name, .valid = path_valid, \
	      .takes = "an absolute path such as \"" example "\"")

static const struct record_field tls_fields[] = {
	FILE_FIELD(cert, "cert", "/etc/carve/metrics.crt"),
	FILE_FIELD(key, "key", "/etc/carve/metrics.key"),
	FILE_FIELD(client_ca, "client_ca", "/etc/carve/prometheus-ca.crt"),
	{0},
};

static int fields_take(const json_t *value, const struct record_field *fields, const char *of,
		       void *record, struct error *err)
{
	const char *key;
	json_t *item;

	json_object_foreach((json_t *)value, key, item)
	{
		const struct record_field *field = record_find(fields, key);
		char what[32];

		snprintf(what, sizeof(what), "key of %s", of);
		if (!field)
			return record_unknown(fields, SIZE_MAX, what, "", key, err);
		int rc = record_take(field, item, record, err);
		if (rc < 0 && field->takes)
			return error_set(err, EXIT_CODE_USAGE, "%s.%s takes %s", of, field->name,
					 field->takes);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int take_tls(const json_t *value, void *record, struct error *err)
{
	const struct metrics_config *to = record;

	if (!json_is_object(value))
		return error_set(err, EXIT_CODE_USAGE, "metrics.tls takes " TLS_TAKES);
	int rc = fields_take(value, tls_fields, "metrics.tls", record, err);
	if (rc == 0 && (!to->cert[0] || !to->key[0]))
		rc = error_set(err, EXIT_CODE_USAGE, "metrics.tls lacks %s: it takes " TLS_TAKES,
			       to->cert[0] ? "key" : "cert");
	return rc;
}

static const struct record_field fields[] = {
	FIELD(listen, "listen", .valid = listen_valid, .takes = LISTEN_TAKES),
	{"tls", .take = take_tls},
	FILE_FIELD(token_file, "token_file", "/etc/carve/metrics.token"),
	FIELD(readers, "readers", .valid = name_valid, .takes = "the name of a group"),
	FILE_FIELD(job_mapping_dir, "job_mapping_dir", "/var/lib/carve/dcgm"),
	{0},
};

/* A reader on another machine is heard over TLS alone, and has to prove who it is. */
static int listen_agrees(const struct metrics_config *config, struct error *err)
{
	struct sockaddr_storage address;
	socklen_t size;
	bool outside = config->listen[0] && metrics_address(config->listen, &address, &size) == 0 &&
		       !metrics_address_is_loopback(&address);

	if (!config->listen[0] && (config->cert[0] || config->token_file[0]))
		return error_set(err, EXIT_CODE_USAGE, "metrics.listen is missing: it takes %s",
				 LISTEN_TAKES);
	if (outside && !config->cert[0])
		return error_set(err, EXIT_CODE_USAGE,
				 "metrics.listen: other machines reach %s, which takes "
				 "\"tls\": " TLS_TAKES
				 "; without tls it takes \"127.0.0.1:9400\" or \"[::1]:9400\"",
				 config->listen);
	if (outside && !metrics_config_proves(config))
		return error_set(err, EXIT_CODE_USAGE,
				 "metrics.listen: other machines reach %s, so that readers have to "
				 "prove who they are: add metrics.tls.client_ca or "
				 "metrics.token_file",
				 config->listen);
	return 0;
}

int metrics_config_read(const json_t *value, struct metrics_config *ret, struct error *err)
{
	struct metrics_config config = metrics_config_default;

	if (!json_is_object(value))
		return error_set(err, EXIT_CODE_USAGE,
				 "metrics takes an object such as {\"listen\": "
				 "\"127.0.0.1:9400\"}");
	int rc = fields_take(value, fields, "metrics", &config, err);
	if (rc == 0)
		rc = listen_agrees(&config, err);
	if (rc == 0)
		*ret = config;
	return rc;
}
