#include "daemon/waiting/quota_fields.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/units.h"
#include "daemon/host/names.h"

static const struct {
	const char *name, *title, *word;
} limits[QUOTA_LIMITS] = {
	[QUOTA_VRAM] = {"vram_bytes", "GPU memory", "vram"},
	[QUOTA_SESSIONS] = {"sessions", "sessions at a time", "sessions"},
	[QUOTA_GPUS] = {"gpus", "different GPUs at a time", "gpus"},
	[QUOTA_HOURS] = {"gpu_hours", "GPU-hours this month", "gpu_hours"},
};

const char *quota_fields_name(enum quota_limit limit)
{
	return limits[limit].name;
}

const char *quota_fields_title(enum quota_limit limit)
{
	return limits[limit].title;
}

const char *quota_fields_kind(enum quota_kind kind)
{
	static const char *const kinds[] = {
		[QUOTA_OF_USER] = "user",         [QUOTA_OF_GROUP] = "group",
		[QUOTA_OF_EACH] = "each",         [QUOTA_OF_EVERYONE] = "everyone",
		[QUOTA_OF_DEFAULTS] = "defaults", [QUOTA_OF_NOBODY] = NULL};

	return kinds[kind];
}

const char *quota_fields_owner(enum quota_kind kind, uint32_t id)
{
	if (kind == QUOTA_OF_USER)
		return names_of(NAMES_OF_USERS, id);
	return quota_is_of_group(kind) ? names_of(NAMES_OF_GROUPS, id) : "";
}

json_t *quota_fields_amount(enum quota_limit limit, uint64_t amount)
{
	return limit == QUOTA_HOURS ? json_real(quota_used_hours(amount))
				    : json_integer((json_int_t)amount);
}

json_t *quota_fields_limit(enum quota_limit limit, uint64_t most)
{
	if (most == QUOTA_NONE)
		return json_null();
	if (most == QUOTA_UNLIMITED)
		return json_string("unlimited");
	return limit == QUOTA_HOURS ? json_real((double)most / 3600000)
				    : quota_fields_amount(limit, most);
}

const char *quota_fields_text(const struct quota *quota, char buf[static QUOTA_FIELDS_TEXT_SIZE])
{
	char text[UNITS_TEXT_SIZE];
	size_t used = 0;

	for (enum quota_limit i = 0; i < QUOTA_LIMITS; i++) {
		uint64_t most = quota->most[i];

		if (!quota_is_limit(most))
			snprintf(text, sizeof(text), "%s",
				 most == QUOTA_NONE ? "no limit" : "unlimited");
		else if (i == QUOTA_VRAM)
			units_format_bytes(most, text);
		else if (i == QUOTA_HOURS)
			quota_format_hours(most, text);
		else
			snprintf(text, sizeof(text), "%" PRIu64, most);
		used += (size_t)snprintf(buf + used, QUOTA_FIELDS_TEXT_SIZE - used, "%s%s %s",
					 i ? ", " : "", limits[i].word, text);
	}
	return buf;
}

/* A value that is no number. */
static bool word_take(const json_t *value, uint64_t *to)
{
	const char *text = json_string_value(value);

	if (json_is_null(value))
		*to = QUOTA_NONE;
	else if (text && !strcmp(text, "unlimited"))
		*to = QUOTA_UNLIMITED;
	else
		return false;
	return true;
}

static int count_take(const json_t *value, const char *name, uint64_t *to, struct error *err)
{
	json_int_t number = json_integer_value(value);

	if (word_take(value, to))
		return 0;
	if (!json_is_integer(value))
		return RECORD_WRONG_TYPE;
	if (number < 0)
		return error_set(err, EXIT_CODE_USAGE, "%s: %" JSON_INTEGER_FORMAT " is negative",
				 name, number);
	*to = (uint64_t)number;
	return 0;
}

static int vram_take(const json_t *value, void *quota, struct error *err)
{
	uint64_t *to = &((struct quota *)quota)->most[QUOTA_VRAM];
	const char *text = json_string_value(value);

	if (text && strcmp(text, "unlimited") != 0)
		return quota_parse_vram(text, "vram", to, err);
	/* Only of nothing is the unit known. */
	if (json_is_integer(value) && json_integer_value(value) != 0)
		return RECORD_WRONG_TYPE;
	return count_take(value, "vram", to, err);
}

static int vram_bytes_take(const json_t *value, void *quota, struct error *err)
{
	return count_take(value, "vram_bytes", &((struct quota *)quota)->most[QUOTA_VRAM], err);
}

static int sessions_take(const json_t *value, void *quota, struct error *err)
{
	return count_take(value, "sessions", &((struct quota *)quota)->most[QUOTA_SESSIONS], err);
}

static int gpus_take(const json_t *value, void *quota, struct error *err)
{
	return count_take(value, "gpus", &((struct quota *)quota)->most[QUOTA_GPUS], err);
}

static int hours_take(const json_t *value, void *quota, struct error *err)
{
	uint64_t *to = &((struct quota *)quota)->most[QUOTA_HOURS];
	double hours = json_number_value(value);

	if (word_take(value, to))
		return 0;
	if (!json_is_number(value) || !(hours >= 0 && hours <= QUOTA_HOURS_MAX))
		return RECORD_WRONG_TYPE;
	*to = quota_limit_ms(hours);
	return 0;
}

#define COUNT "a whole number, or \"unlimited\""
const struct record_field quota_fields[] = {
	{"vram", RECORD_SEVERAL, .take = vram_take,
	 .takes = "a size such as \"16GiB\", 0, or \"unlimited\""},
	{"vram_bytes", RECORD_SEVERAL, .take = vram_bytes_take, .takes = COUNT},
	{"sessions", RECORD_SEVERAL, .take = sessions_take, .takes = COUNT},
	{"gpus", RECORD_SEVERAL, .take = gpus_take, .takes = COUNT},
	{"gpu_hours", RECORD_SEVERAL, .take = hours_take,
	 .takes = "a number of GPU-hours in a month such as 100, or \"unlimited\""},
	{0},
};
