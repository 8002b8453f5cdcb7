#include "daemon/request/request.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/units.h"
#include "core/mig.h"
#include "daemon/gpu/pool.h"

/* Takes one field's value into the request. */
typedef int (*field_parse)(const json_t *value, struct slice_request *to, struct error *err);

struct field {
	const char *name;
	field_parse parse;
	bool is_size;
	const char *takes; /* for the error where the type is wrong */
};

#define WRONG_TYPE (-1000) /* answer of a field_parse that did not word the error */

static int parse_vram_bytes(const json_t *value, struct slice_request *to, struct error *err)
{
	json_int_t bytes = json_integer_value(value);

	if (!json_is_integer(value))
		return WRONG_TYPE;
	if (bytes < 0)
		return error_set(err, EXIT_CODE_USAGE,
				 "vram_bytes: %" JSON_INTEGER_FORMAT " is negative", bytes);
	if ((uint64_t)bytes < SLICE_BYTES_MIN)
		return error_set(err, EXIT_CODE_USAGE,
				 "vram_bytes: %" JSON_INTEGER_FORMAT
				 " is below the smallest slice of 100 MB",
				 bytes);
	if ((uint64_t)bytes > SLICE_BYTES_MAX)
		return error_set(err, EXIT_CODE_USAGE,
				 "vram_bytes: %" JSON_INTEGER_FORMAT
				 " is more than any GPU has (128 TiB)",
				 bytes);
	to->place.bytes = (uint64_t)bytes;
	return 0;
}

static int parse_vram(const json_t *value, struct slice_request *to, struct error *err)
{
	return json_is_string(value)
		       ? units_parse_vram(json_string_value(value), &to->place.bytes, err)
		       : WRONG_TYPE;
}

static int parse_gpu_memory(const json_t *value, struct slice_request *to, struct error *err)
{
	return json_is_string(value)
		       ? units_parse_gpu_memory(json_string_value(value), &to->place.bytes, err)
		       : WRONG_TYPE;
}

static int parse_gpu(const json_t *value, struct slice_request *to, struct error *err)
{
	char number[32];
	const char *text = json_string_value(value);
	uint32_t share, whole;

	if (json_is_number(value)) {
		snprintf(number, sizeof(number), "%.9g", json_number_value(value));
		text = number;
	}
	if (!text)
		return WRONG_TYPE;
	int rc = units_parse_gpu(text, &share, &whole, err);
	if (rc < 0)
		return rc;
	to->place.kind = whole ? PLACE_WHOLE : PLACE_FRACTION;
	to->place.share = share;
	if (whole > PLACE_GPUS_MAX) {
		error_set(err, EXIT_CODE_USAGE, "gpu: '%.64s' is more than %u GPUs", text,
			  PLACE_GPUS_MAX);
		return -1;
	}
	if (whole > 1)
		to->place.count = whole;
	/* A fraction is one of time too. */
	if (!to->place.compute)
		to->place.compute = share;
	return 0;
}

static int parse_strict(const json_t *value, struct slice_request *to, struct error *err)
{
	to->place.strict = json_is_true(value);
	return json_is_boolean(value) ? 0 : WRONG_TYPE;
}

static int parse_ephemeral(const json_t *value, struct slice_request *to, struct error *err)
{
	to->ephemeral = json_is_true(value);
	return json_is_boolean(value) ? 0 : WRONG_TYPE;
}

static int parse_kept(const json_t *value, struct slice_request *to, struct error *err)
{
	to->kept = json_is_true(value);
	if (!to->kept || !to->ephemeral)
		return json_is_boolean(value) ? 0 : WRONG_TYPE;
	return error_set(err, EXIT_CODE_USAGE, "kept: an ephemeral session cannot be kept");
}

static int parse_again(const json_t *value, struct slice_request *to, struct error *err)
{
	to->again = json_is_true(value);
	if (!json_is_boolean(value))
		return WRONG_TYPE;
	if (!to->again || (to->id[0] && to->ephemeral))
		return 0;
	return error_set(err, EXIT_CODE_USAGE,
			 "again: only an ephemeral session whose 'id' is given comes back");
}

static int parse_gpu_compute(const json_t *value, struct slice_request *to, struct error *err)
{
	if (!json_is_string(value))
		return WRONG_TYPE;
	to->compute_given = true;
	if (to->place.kind == PLACE_PROFILE)
		return error_set(err, EXIT_CODE_USAGE,
				 "gpu_compute: a MIG profile has the compute that it has; "
				 "leave one of them out");
	int rc =
		units_parse_share(json_string_value(value), "gpu_compute", &to->place.compute, err);
	if (rc < 0 || to->place.kind != PLACE_WHOLE || to->place.compute == SHARE_ONE)
		return rc;
	return error_set(err, EXIT_CODE_USAGE, "gpu_compute: a whole GPU is all of its time");
}

static int parse_gpus(const json_t *value, struct slice_request *to, struct error *err)
{
	if (!json_is_integer(value))
		return WRONG_TYPE;
	json_int_t count = json_integer_value(value);
	if (count < 1 || count > PLACE_GPUS_MAX) {
		error_set(err, EXIT_CODE_USAGE, "gpus: %" JSON_INTEGER_FORMAT " is outside 1 to %u",
			  count, PLACE_GPUS_MAX);
		return -1;
	}
	if (to->place.kind == PLACE_WHOLE && to->place.count > 1 && to->place.count != count) {
		error_set(err, EXIT_CODE_USAGE,
			  "gpus: %" JSON_INTEGER_FORMAT " contradicts gpu: %u", count,
			  to->place.count);
		return -1;
	}
	to->place.count = (uint32_t)count;
	return 0;
}

static int indexes_add(struct slice_request *to, unsigned long first, unsigned long last,
		       struct error *err)
{
	for (unsigned long i = first; i <= last; i++) {
		if (to->index[i]) {
			error_set(err, EXIT_CODE_USAGE, "gpu_ids: GPU %lu is named twice", i);
			error_hint(err, "for example: 0,1 or 0-2 or all");
			return -1;
		}
		to->index[i] = 1;
	}
	return 0;
}

/* "0-2", "0,1", "0, 1", "all". */
static int parse_gpu_ids(const json_t *value, struct slice_request *to, struct error *err)
{
	const char *text = json_string_value(value), *at = text;

	if (!text)
		return WRONG_TYPE;
	if (!strcmp(text, "all"))
		return 0;
	to->by_index = true;
	do {
		char *end;
		unsigned long first, last;

		at += strspn(at, " ");
		first = last = strtoul(at, &end, 10);
		bool digits = end != at && *at >= '0' && *at <= '9';
		if (digits && *end == '-' && end[1] >= '0' && end[1] <= '9') {
			at = end + 1;
			last = strtoul(at, &end, 10);
		}
		end += strspn(end, " ");
		if (!digits || last < first || (*end && *end != ',')) {
			error_set(err, EXIT_CODE_USAGE, "gpu_ids: '%.64s' is not a list of GPUs",
				  text);
			error_hint(err, "for example: 0,1 or 0-2 or all");
			return -1;
		}
		if (last >= GPUS_MAX) {
			error_set(err, EXIT_CODE_USAGE, "gpu_ids: there is no GPU %.*s",
				  (int)MIN(strcspn(at, ", "), 64), at);
			error_hint(err, "`carve gpu list` shows the GPUs");
			return -1;
		}
		if (indexes_add(to, first, last, err) < 0)
			return -1;
		at = *end ? end + 1 : end;
		if (*end && !*at)
			at = " ,"; /* a list that ends in a comma */
	} while (*at);
	return 0;
}

#define SECONDS_MAX 1e9

static int parse_time(const json_t *value, const char *field, uint64_t *ret, struct error *err)
{
	double seconds = json_number_value(value);

	if (json_is_string(value))
		return units_parse_seconds(json_string_value(value), field, ret, err);
	if (!json_is_number(value))
		return WRONG_TYPE;
	if (seconds < 0)
		return error_set(err, EXIT_CODE_USAGE, "%s: %.15g is negative", field, seconds);
	if (seconds > SECONDS_MAX)
		return error_set(err, EXIT_CODE_USAGE, "%s: %.15g is more than 30 years", field,
				 seconds);
	*ret = (uint64_t)(seconds * 1e9);
	return 0;
}

static int parse_wait_for(const json_t *value, struct slice_request *to, struct error *err)
{
	return parse_time(value, "wait_for", &to->wait_ns, err);
}

static int parse_session_timeout(const json_t *value, struct slice_request *to, struct error *err)
{
	int rc = parse_time(value, "session_timeout", &to->timeout_ns, err);

	if (rc == 0 && to->timeout_ns == 0) {
		rc = error_set(err, EXIT_CODE_USAGE,
			       "session_timeout: it must be more than 0 seconds");
		error_hint(err, "leave it out for a session that ends when it is released");
	}
	return rc;
}

static int parse_priority(const json_t *value, struct slice_request *to, struct error *err)
{
	json_int_t priority = json_integer_value(value);

	if (!json_is_integer(value))
		return WRONG_TYPE;
	if (priority < -REQUEST_PRIORITY_MAX || priority > REQUEST_PRIORITY_MAX) {
		error_set(err, EXIT_CODE_USAGE,
			  "priority: %" JSON_INTEGER_FORMAT " is outside -%d to %d", priority,
			  REQUEST_PRIORITY_MAX, REQUEST_PRIORITY_MAX);
		return -1;
	}
	to->priority = (int)priority;
	return 0;
}

static int parse_id(const json_t *value, struct slice_request *to, struct error *err)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	const char *text = json_string_value(value);

	if (!text)
		return WRONG_TYPE;
	size_t length = strlen(text);
	if (length < 8 || length >= sizeof(to->id) || strncmp(text, "s-", 2) != 0 ||
	    strspn(text + 2, allowed) != length - 2) {
		error_set(err, EXIT_CODE_USAGE, "id: '%.64s' is no session ID", text);
		error_hint(err, "s- and 6 to %zu letters and digits; leave it out to get one",
			   sizeof(to->id) - 3);
		return -1;
	}
	memcpy(to->id, text, length + 1);
	return 0;
}

static int parse_name(const json_t *value, struct slice_request *to, struct error *err)
{
	static const char allowed[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
	const char *text = json_string_value(value);

	if (!text)
		return WRONG_TYPE;
	size_t length = strlen(text);
	/* It stands where an ID may stand, in paths and on command lines, and must not be taken for
	 * one, nor for a folder or an option. */
	if (!length || length >= sizeof(to->name) || strspn(text, allowed) != length ||
	    !strncmp(text, "s-", 2) || text[0] == '.' || text[0] == '-') {
		error_set(err, EXIT_CODE_USAGE, "name: '%.64s' is no name for a session", text);
		error_hint(err, "1 to %zu letters, digits and . _ -, not beginning with s-, . or -",
			   sizeof(to->name) - 1);
		return -1;
	}
	snprintf(to->name, sizeof(to->name), "%s", text);
	return 0;
}

static int parse_mig_profile(const json_t *value, struct slice_request *to, struct error *err)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789.+-";
	const char *text = json_string_value(value);

	if (!text)
		return WRONG_TYPE;
	size_t length = strlen(text);
	if (!length || length >= sizeof(to->profile) || strspn(text, allowed) != length) {
		error_set(err, EXIT_CODE_USAGE, "mig_profile: '%.64s' is no name of a MIG profile",
			  text);
		error_hint(err, "carve gpu list --json shows the names of each GPU's profiles");
		return -1;
	}
	to->place.kind = PLACE_PROFILE;
	memcpy(to->profile, text, length + 1);
	return 0;
}

/* After the profile. */
static int parse_mig_start(const json_t *value, struct slice_request *to, struct error *err)
{
	json_int_t start = json_integer_value(value);

	if (!json_is_integer(value))
		return WRONG_TYPE;
	if (to->place.kind != PLACE_PROFILE) {
		error_set(err, EXIT_CODE_USAGE, "mig_start: it is for a MIG profile");
		error_hint(err, "give mig_profile beside it");
		return -1;
	}
	if (start < 0 || start >= (json_int_t)MIG_UNITS_MAX) {
		error_set(err, EXIT_CODE_USAGE,
			  "mig_start: %" JSON_INTEGER_FORMAT " is no memory unit of a GPU", start);
		error_hint(err, "0 to %u", MIG_UNITS_MAX - 1);
		return -1;
	}
	to->mig_starts = 1u << start;
	return 0;
}

/* [[GPU, start], ...]: as many instances, each at its place. After `gpus` and `gpu_ids`. */
static int parse_mig_places(const json_t *value, struct slice_request *to, struct error *err)
{
	const json_t *place;
	size_t i;

	if (!json_is_array(value) || !json_array_size(value))
		return WRONG_TYPE;
	if (to->place.kind != PLACE_PROFILE || to->mig_starts || to->by_index ||
	    to->place.count != 1 || json_array_size(value) > MIG_CHOICES_MAX)
		return error_set(err, EXIT_CODE_USAGE,
				 "mig_places: it is for up to %u instances of a MIG profile, "
				 "without mig_start, gpus and gpu_ids",
				 MIG_CHOICES_MAX);
	json_array_foreach((json_t *)value, i, place)
	{
		json_int_t gpu = json_integer_value(json_array_get(place, 0)),
			   start = json_integer_value(json_array_get(place, 1));

		if (json_array_size(place) != 2 || !json_is_integer(json_array_get(place, 0)) ||
		    !json_is_integer(json_array_get(place, 1)))
			return WRONG_TYPE;
		if (gpu < 0 || gpu >= GPUS_MAX || start < 0 || start >= (json_int_t)MIG_UNITS_MAX ||
		    to->mig_at[gpu] >> start & 1)
			return error_set(err, EXIT_CODE_USAGE,
					 "mig_places: [%" JSON_INTEGER_FORMAT
					 ", %" JSON_INTEGER_FORMAT
					 "] is no place on a GPU, or is there twice",
					 gpu, start);
		to->mig_at[gpu] |= 1u << start;
		to->index[gpu] = 1;
	}
	to->by_index = to->mig_placed = true;
	to->place.count = (uint32_t)json_array_size(value);
	return 0;
}

static int parse_backend(const json_t *value, struct slice_request *to, struct error *err)
{
	const char *text = json_string_value(value);

	if (!text)
		return WRONG_TYPE;
	if (!strcmp(text, "mig"))
		to->backend = BACKEND_MIG;
	else if (!strcmp(text, "fraction") && to->place.kind != PLACE_PROFILE)
		to->backend = BACKEND_FRACTION;
	else
		return error_set(err, EXIT_CODE_USAGE,
				 to->place.kind == PLACE_PROFILE && !strcmp(text, "fraction")
					 ? "backend: a MIG profile is no fraction"
					 : "backend: there are mig and fraction");
	return 0;
}

/* After all that it has a say in. */
static int parse_mig_share(const json_t *value, struct slice_request *to, struct error *err)
{
	const char *why = to->place.kind != PLACE_BYTES ? "sizes in memory alone share an instance"
			  : to->place.count > 1         ? "it is for one instance"
			  : to->backend == BACKEND_FRACTION ? "a fraction is no MIG instance"
			  : to->compute_given ? "compute of a shared instance is nobody's alone"
					      : NULL;

	if (!json_is_boolean(value))
		return WRONG_TYPE;
	to->together = json_is_true(value);
	if (!to->together || !why)
		return 0;
	error_set(err, EXIT_CODE_USAGE, "mig_share: %s", why);
	error_hint(err, "for example: --vram 4 --mig-share");
	return -1;
}

static const struct field fields[] = {
	{"vram_bytes", parse_vram_bytes, true, "a whole number of bytes"},
	{"vram", parse_vram, true, "a text such as \"2.5GiB\""},
	{"gpu_memory", parse_gpu_memory, true, "a text such as \"4G\""},
	{"gpu", parse_gpu, true, "a number such as 0.5"},
	{"mig_profile", parse_mig_profile, true, "a text, the name of a profile"},
	{"mig_start", parse_mig_start, false, "a memory unit, 0 or more"},
	{"backend", parse_backend, false, "\"mig\" or \"fraction\""},
	{"vram_strict", parse_strict, false, "true or false"},
	{"gpu_compute", parse_gpu_compute, false, "a text such as \"25%\""},
	{"gpus", parse_gpus, false, "a whole number"},
	{"mig_share", parse_mig_share, false, "true or false"},
	{"gpu_ids", parse_gpu_ids, false, "a text such as \"0,1\""},
	{"mig_places", parse_mig_places, false, "a list of [GPU, memory unit]"},
	{"wait_for", parse_wait_for, false, "a number of seconds"},
	{"session_timeout", parse_session_timeout, false, "a number of seconds"},
	{"ephemeral", parse_ephemeral, false, "true or false"},
	{"kept", parse_kept, false, "true or false"},
	{"priority", parse_priority, false, "a whole number"},
	{"name", parse_name, false, "a text"},
	{"id", parse_id, false, "a session ID"},
	{"again", parse_again, false, "true or false"},
};

static const struct field *field_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
		if (!strcmp(fields[i].name, name))
			return &fields[i];
	return NULL;
}

/* The parsers of sizes speak of options; who asks here gave a field. */
static void error_name_field(struct error *err, const struct field *field)
{
	char rest[sizeof(err->message)];
	const char *colon = strchr(err->message, ':');

	if (strncmp(err->message, "--", 2) != 0 || !colon)
		return;
	snprintf(rest, sizeof(rest), "%s", colon);
	error_set(err, err->code, "%s%s", field->name, rest);
	error_hint(err, "'%s' takes %s", field->name, field->takes);
}

static int field_apply(const struct field *field, const json_t *value, struct slice_request *to,
		       struct error *err)
{
	int rc = field->parse(value, to, err);

	if (rc == WRONG_TYPE)
		error_set(err, EXIT_CODE_USAGE, "'%s' takes %s", field->name, field->takes);
	else if (rc < 0)
		error_name_field(err, field);
	return rc;
}

static void unknown_field(const char *key, bool sizes_only, struct error *err)
{
	char list[sizeof(err->hint)];
	size_t used = 0;

	for (size_t i = 0; i < ARRAY_SIZE(fields) && used < sizeof(list); i++)
		if (fields[i].is_size || !sizes_only)
			used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s",
						 i ? ", " : "", fields[i].name);
	error_set(err, EXIT_CODE_USAGE, "unknown field '%.64s'", key);
	error_hint(err, "there are %s", list);
}

/* Every key must be a field; null counts as absent. Exactly one size. */
static int keys_check(const json_t *root, bool sizes_only, struct error *err)
{
	unsigned sizes = 0;
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)root, key, value)
	{
		const struct field *field = field_find(key);

		if (!field || (sizes_only && !field->is_size)) {
			unknown_field(key, sizes_only, err);
			return -1;
		}
		sizes += field->is_size && !json_is_null(value);
	}
	if (sizes == 1)
		return 0;
	error_set(err, EXIT_CODE_USAGE,
		  sizes ? "more than one size was given" : "no size was given");
	error_hint(err, "give one of vram_bytes, vram, gpu_memory, gpu");
	return -1;
}

static int parse(const json_t *root, bool sizes_only, struct slice_request *ret, struct error *err)
{
	struct slice_request request = {.place = {.kind = PLACE_BYTES, .count = 1}};

	if (!json_is_object(root)) {
		error_set(err, EXIT_CODE_USAGE, "the body is not a JSON object");
		return -1;
	}
	int rc = keys_check(root, sizes_only, err);
	/* In the order of the table: `gpus` looks at what `gpu` said. */
	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(fields); i++) {
		const json_t *value = json_object_get(root, fields[i].name);

		if (value && !json_is_null(value))
			rc = field_apply(&fields[i], value, &request, err);
	}
	if (rc == 0)
		*ret = request;
	return rc;
}

int request_parse(const json_t *root, struct slice_request *ret, struct error *err)
{
	return parse(root, false, ret, err);
}

int request_parse_size(const json_t *root, struct place_request *ret, struct error *err)
{
	struct slice_request request;
	int rc = parse(root, true, &request, err);

	if (rc == 0)
		*ret = request.place;
	return rc;
}

int request_parse_gpu_ids(const json_t *value, struct slice_request *to, struct error *err)
{
	return field_apply(field_find("gpu_ids"), value, to, err);
}

int request_resolve(struct slice_request *request, const struct pool *pool, struct error *err)
{
	request->place.allowed = NULL;
	if (!request->by_index)
		return 0;
	memset(request->allowed, 0, sizeof(request->allowed));
	for (uint32_t index = 0; index < GPUS_MAX; index++) {
		bool found = !request->index[index];

		for (uint32_t i = 0; i < pool->count && !found; i++) {
			found = pool->gpu[i].info.index == index;
			request->allowed[i] |= found;
			if (found)
				request->mig_on[i] = request->mig_at[index];
		}
		if (!found) {
			error_set(err, EXIT_CODE_USAGE, "gpu_ids: there is no GPU %u", index);
			error_hint(err, "`carve gpu list` shows the GPUs");
			return -1;
		}
	}
	request->place.allowed = request->allowed;
	return 0;
}

const char *request_text(const struct place_request *place, const char *profile,
			 char buf[static REQUEST_TEXT_SIZE])
{
	char size[UNITS_TEXT_SIZE];

	if (place->kind == PLACE_WHOLE)
		snprintf(buf, REQUEST_TEXT_SIZE, "%s",
			 units_format_count(place->count, "whole GPU", size));
	else if (place->kind == PLACE_PROFILE)
		snprintf(buf, REQUEST_TEXT_SIZE, "%s %s",
			 units_format_count(place->count, "MIG instance", size), profile);
	else if (place->kind == PLACE_FRACTION && place->count == 1)
		snprintf(buf, REQUEST_TEXT_SIZE, "%g of a GPU", place->share / (double)SHARE_ONE);
	else if (place->kind == PLACE_FRACTION)
		snprintf(buf, REQUEST_TEXT_SIZE, "%g of each of %u GPUs",
			 place->share / (double)SHARE_ONE, place->count);
	else if (place->count == 1)
		snprintf(buf, REQUEST_TEXT_SIZE, "%s", units_format_bytes(place->bytes, size));
	else
		snprintf(buf, REQUEST_TEXT_SIZE, "%s on each of %u GPUs",
			 units_format_bytes(place->bytes, size), place->count);
	return buf;
}
