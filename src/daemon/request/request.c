/* The body of a request for a slice: a table of its fields, and a function for each field whose
 * value needs thought.
 *
 * request_parse() first looks at the keys: an unknown key is refused, and exactly one size must be
 * there. Then it takes the fields in the order of the table, not of the body, because later fields
 * are checked against earlier ones. For example, `gpus` must not contradict what `gpu` said, and
 * `again` needs the `id` before it. A field that is null counts as absent.
 *
 * The sizes themselves are parsed by core/request.h. Its errors speak of options of the command
 * line, so error_name_field() puts the field's name in their place. The second step is
 * request_resolve(). It finds the named GPUs in the pool, which may have changed while the request
 * waited. Loop thread. */
#include "daemon/request/request.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/record_json.h"
#include "base/units.h"
#include "core/mig.h"
#include "core/request.h"
#include "daemon/gpu/pool.h"

static int parse_vram_bytes(const json_t *value, void *record, struct error *err)
{
	struct slice_request *to = record;
	json_int_t bytes = json_integer_value(value);

	if (!json_is_integer(value))
		return RECORD_WRONG_TYPE;
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

static int size_put(enum request_size size, const json_t *value, void *record, struct error *err)
{
	struct slice_request *to = record;

	return json_is_string(value)
		       ? request_size_put(size, json_string_value(value), &to->place, err)
		       : RECORD_WRONG_TYPE;
}

static int parse_vram(const json_t *value, void *record, struct error *err)
{
	return size_put(REQUEST_VRAM, value, record, err);
}

static int parse_gpu_memory(const json_t *value, void *record, struct error *err)
{
	return size_put(REQUEST_GPU_MEMORY, value, record, err);
}

static int parse_gpu(const json_t *value, void *record, struct error *err)
{
	struct slice_request *to = record;
	char number[32];

	if (!json_is_number(value))
		return size_put(REQUEST_GPU, value, record, err);
	snprintf(number, sizeof(number), "%.9g", json_number_value(value));
	return request_size_put(REQUEST_GPU, number, &to->place, err);
}

static int name_check(void *record, struct error *err)
{
	const struct slice_request *request = record;

	if (strcmp(request->name, REQUEST_CURRENT) != 0)
		return 0;
	error_set(err, EXIT_CODE_USAGE,
		  "name: '" REQUEST_CURRENT "' stands for the session without a name");
	error_hint(err, "choose another name, or leave it out");
	return -1;
}

static int kept_check(void *record, struct error *err)
{
	const struct slice_request *request = record;

	if (!request->kept || !request->ephemeral)
		return 0;
	return error_set(err, EXIT_CODE_USAGE, "kept: an ephemeral session cannot be kept");
}

static int again_check(void *record, struct error *err)
{
	const struct slice_request *request = record;

	if (!request->again || (request->id[0] && request->ephemeral))
		return 0;
	return error_set(err, EXIT_CODE_USAGE,
			 "again: only an ephemeral session whose 'id' is given comes back");
}

static int parse_gpu_compute(const json_t *value, void *record, struct error *err)
{
	struct slice_request *to = record;
	if (!json_is_string(value))
		return RECORD_WRONG_TYPE;
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

static int parse_gpus(const json_t *value, void *record, struct error *err)
{
	struct slice_request *to = record;
	if (!json_is_integer(value))
		return RECORD_WRONG_TYPE;
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
static int parse_gpu_ids(const json_t *value, void *record, struct error *err)
{
	struct slice_request *to = record;
	const char *text = json_string_value(value), *at = text;

	if (!text)
		return RECORD_WRONG_TYPE;
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
		if (!digits || last < first || (*end && *end != ','))
			return record_wrong(err, "gpu_ids", text, "is not a list of GPUs",
					    "for example: 0,1 or 0-2 or all");
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
		return RECORD_WRONG_TYPE;
	if (seconds < 0)
		return error_set(err, EXIT_CODE_USAGE, "%s: %.15g is negative", field, seconds);
	if (seconds > SECONDS_MAX)
		return error_set(err, EXIT_CODE_USAGE, "%s: %.15g is more than 30 years", field,
				 seconds);
	*ret = (uint64_t)(seconds * 1e9);
	return 0;
}

static int parse_wait_for(const json_t *value, void *record, struct error *err)
{
	struct slice_request *to = record;
	return parse_time(value, "wait_for", &to->wait_ns, err);
}

static int parse_session_timeout(const json_t *value, void *record, struct error *err)
{
	struct slice_request *to = record;
	int rc = parse_time(value, "session_timeout", &to->timeout_ns, err);

	if (rc == 0 && to->timeout_ns == 0) {
		rc = error_set(err, EXIT_CODE_USAGE,
			       "session_timeout: it must be more than 0 seconds");
		error_hint(err, "leave it out for a session that ends when it is released");
	}
	return rc;
}

/* NAMESPACE/POD or NAMESPACE/POD/CONTAINER, as labels of metrics show them. */
static bool is_pod(const char *text)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789-.";
	unsigned parts = 0;

	for (;;) {
		size_t size = strspn(text, letters);

		parts++;
		text += size;
		if (!size || parts > 3 || (*text && *text != '/'))
			return false;
		if (!*text)
			return parts >= 2;
		text++;
	}
}

static bool is_session_id(const char *text)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789";

	return strlen(text) >= 8 && !strncmp(text, "s-", 2) && !text[2 + strspn(text + 2, allowed)];
}

/* A name stands where an ID may stand, in paths and on command lines, and must not be taken for an
 * ID, nor for a folder or an option. */
static bool is_session_name(const char *text)
{
	static const char allowed[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

	return *text && !text[strspn(text, allowed)] && strncmp(text, "s-", 2) != 0 &&
	       text[0] != '.' && text[0] != '-';
}

static bool is_profile_name(const char *text)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789.+-";

	return *text && !text[strspn(text, allowed)];
}

static int profile_then(void *record, struct error *err)
{
	struct slice_request *to = record;

	to->place.kind = PLACE_PROFILE;
	return 0;
}

/* After the profile. */
static int parse_mig_start(const json_t *value, void *record, struct error *err)
{
	struct slice_request *to = record;
	json_int_t start = json_integer_value(value);

	if (!json_is_integer(value))
		return RECORD_WRONG_TYPE;
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
static int parse_mig_places(const json_t *value, void *record, struct error *err)
{
	struct slice_request *to = record;
	const json_t *place;
	size_t i;

	if (!json_is_array(value) || !json_array_size(value))
		return RECORD_WRONG_TYPE;
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
			return RECORD_WRONG_TYPE;
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

static int parse_backend(const json_t *value, void *record, struct error *err)
{
	struct slice_request *to = record;
	const char *text = json_string_value(value);

	if (!text)
		return RECORD_WRONG_TYPE;
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
static int mig_share_check(void *record, struct error *err)
{
	const struct slice_request *to = record;
	const char *why = to->place.kind != PLACE_BYTES ? "sizes in memory alone share an instance"
			  : to->place.count > 1         ? "it is for one instance"
			  : to->backend == BACKEND_FRACTION ? "a fraction is no MIG instance"
			  : to->compute_given ? "compute of a shared instance is nobody's alone"
					      : NULL;

	if (!to->together || !why)
		return 0;
	error_set(err, EXIT_CODE_USAGE, "mig_share: %s", why);
	error_hint(err, "for example: --vram 4 --mig-share");
	return -1;
}

/* Taken in this order: `gpus` looks at what `gpu` said. */
static const char *const backends[] = {"mig", "fraction", NULL};
#define FIELD(member, name, ...) RECORD_FIELD(struct slice_request, member, name, __VA_ARGS__)
const struct record_field request_fields[] = {
	{"vram_bytes", RECORD_UNSIGNED, .least = SLICE_BYTES_MIN, .most = SLICE_BYTES_MAX,
	 .take = parse_vram_bytes, .takes = "a whole number of bytes"},
	{"vram", RECORD_TEXT, .take = parse_vram, .takes = "a text such as \"2.5GiB\""},
	{"gpu_memory", RECORD_TEXT, .take = parse_gpu_memory, .takes = "a text such as \"4G\""},
	{"gpu", RECORD_SEVERAL, .take = parse_gpu, .takes = "a number such as 0.5"},
	FIELD(profile, "mig_profile", .valid = is_profile_name, .then = profile_then,
	      .takes = "a text, the name of a profile", .wrong = "is no name of a MIG profile",
	      .hint = "carve gpu list --json shows the names of each GPU's profiles"),
	{"mig_start", RECORD_UNSIGNED, .most = MIG_UNITS_MAX - 1, .take = parse_mig_start,
	 .takes = "a memory unit, 0 or more"},
	{"backend", RECORD_UNSIGNED, .words = backends, .take = parse_backend,
	 .takes = "\"mig\" or \"fraction\""},
	FIELD(place.strict, "vram_strict", .takes = "true or false"),
	{"gpu_compute", RECORD_TEXT, .take = parse_gpu_compute, .takes = "a text such as \"25%\""},
	{"gpus", RECORD_UNSIGNED, .least = 1, .most = PLACE_GPUS_MAX, .take = parse_gpus,
	 .takes = "a whole number"},
	FIELD(together, "mig_share", .then = mig_share_check, .takes = "true or false"),
	{"gpu_ids", RECORD_TEXT, .take = parse_gpu_ids, .takes = "a text such as \"0,1\""},
	{"mig_places", RECORD_SEVERAL, .take = parse_mig_places,
	 .takes = "a list of [GPU, memory unit]"},
	{"wait_for", RECORD_SEVERAL, .take = parse_wait_for, .takes = "a number of seconds"},
	{"session_timeout", RECORD_SEVERAL, .take = parse_session_timeout,
	 .takes = "a number of seconds"},
	FIELD(ephemeral, "ephemeral", .takes = "true or false"),
	FIELD(kept, "kept", .then = kept_check, .takes = "true or false"),
	FIELD(priority, "priority", .least = -REQUEST_PRIORITY_MAX, .most = REQUEST_PRIORITY_MAX,
	      .takes = "a whole number"),
	FIELD(name, "name", .valid = is_session_name, .then = name_check, .takes = "a text",
	      .wrong = "is no name for a session",
	      .hint = "1 to 63 letters, digits and . _ -, not beginning with s-, . or -"),
	FIELD(id, "id", .valid = is_session_id, .takes = "a session ID",
	      .wrong = "is no session ID",
	      .hint = "s- and 6 to 13 letters and digits; leave it out to get one"),
	FIELD(again, "again", .then = again_check, .takes = "true or false"),
	FIELD(pod, "pod", .valid = is_pod, .takes = "a text", .wrong = "is no pod of Kubernetes",
	      .hint = "for example default/train-0/main: the namespace, the pod, and its "
		      "container"),
	{0},
};
_Static_assert(STORE_NAME_SIZE == 64 && STORE_ID_SIZE == 16, "the hints above have these sizes");

/* The parsers of sizes speak of options; who asks here gave a field. */
static void error_name_field(struct error *err, const struct record_field *field)
{
	char rest[sizeof(err->message)];
	const char *colon = strchr(err->message, ':');

	if (strncmp(err->message, "--", 2) != 0 || !colon)
		return;
	snprintf(rest, sizeof(rest), "%s", colon);
	error_set(err, err->code, "%s%s", field->name, rest);
	error_hint(err, "'%s' takes %s", field->name, field->takes);
}

static int field_apply(const struct record_field *field, const json_t *value,
		       struct slice_request *to, struct error *err)
{
	int rc = record_take(field, value, to, err);

	if (rc < 0)
		error_name_field(err, field);
	return rc;
}

/* Every key must be a field; null counts as absent. Exactly one size. */
static int keys_check(const json_t *root, bool sizes_only, struct error *err)
{
	unsigned sizes = 0;
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)root, key, value)
	{
		const struct record_field *field = record_find(request_fields, key);
		bool is_size = field && field < request_fields + REQUEST_SIZE_FIELDS;

		if (!field || (sizes_only && !is_size))
			return record_unknown(request_fields,
					      sizes_only ? REQUEST_SIZE_FIELDS : SIZE_MAX, "field",
					      "", key, err);
		sizes += is_size && !json_is_null(value);
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
	struct slice_request request = {.place = REQUEST_NONE};

	if (!json_is_object(root)) {
		error_set(err, EXIT_CODE_USAGE, "the body is not a JSON object");
		return -1;
	}
	int rc = keys_check(root, sizes_only, err);
	for (const struct record_field *field = request_fields; rc == 0 && field->name; field++) {
		const json_t *value = json_object_get(root, field->name);

		if (value && !json_is_null(value))
			rc = field_apply(field, value, &request, err);
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
	return field_apply(record_find(request_fields, "gpu_ids"), value, to, err);
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
