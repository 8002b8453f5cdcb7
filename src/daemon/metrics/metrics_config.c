#include "daemon/metrics/metrics_config.h"

#include <stdio.h>

#include "base/error.h"
#include "base/record_json.h"

#define TLS_TAKES "{\"cert\": FILE, \"key\": FILE, \"client_ca\": FILE}"

const struct metrics_config metrics_config_default = {.readers = METRICS_READERS_DEFAULT};

/* ---- the key ----------------------------------------------------------------------------- */

static bool name_valid(const char *text)
{
	return *text;
}

#define FIELD(member, name, ...) RECORD_FIELD(struct metrics_config, member, name, __VA_ARGS__)
#define FILE_FIELD(member, name, example)             \
	FIELD(member, name, .valid = door_path_valid, \
	      .takes = "an absolute path such as \"" example "\"")

static const struct record_field tls_fields[] = {
	FILE_FIELD(door.cert, "cert", "/etc/carve/metrics.crt"),
	FILE_FIELD(door.key, "key", "/etc/carve/metrics.key"),
	FILE_FIELD(door.client_ca, "client_ca", "/etc/carve/prometheus-ca.crt"),
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
	if (rc == 0 && (!to->door.cert[0] || !to->door.key[0]))
		rc = error_set(err, EXIT_CODE_USAGE, "metrics.tls lacks %s: it takes " TLS_TAKES,
			       to->door.cert[0] ? "key" : "cert");
	return rc;
}

static const struct record_field fields[] = {
	FIELD(door.listen, "listen", .valid = door_listen_valid, .takes = DOOR_LISTEN_TAKES),
	{"tls", .take = take_tls},
	FILE_FIELD(door.token_file, "token_file", "/etc/carve/metrics.token"),
	FIELD(readers, "readers", .valid = name_valid, .takes = "the name of a group"),
	FILE_FIELD(job_mapping_dir, "job_mapping_dir", "/var/lib/carve/dcgm"),
	{0},
};

/* A reader on another machine has to prove who it is, too. */
static int proof_agrees(const struct metrics_config *config, struct error *err)
{
	if (door_config_is_outside(&config->door) && !metrics_config_proves(config))
		return error_set(err, EXIT_CODE_USAGE,
				 "metrics.listen: other machines reach %s, so that readers have to "
				 "prove who they are: add metrics.tls.client_ca or "
				 "metrics.token_file",
				 config->door.listen);
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
		rc = door_config_agrees(&config.door, "metrics", TLS_TAKES, err);
	if (rc == 0)
		rc = proof_agrees(&config, err);
	if (rc == 0)
		*ret = config;
	return rc;
}
