#include "container/env_limits.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/macros.h"

#define MEMORY "CUDA_DEVICE_MEMORY_LIMIT"
#define PERCENT "CUDA_DEVICE_SM_LIMIT"
#define VISIBLE "NVIDIA_VISIBLE_DEVICES"
#define REQUEST "NVIDIA_GPU_MEMORY_REQUEST"
#define LIMIT "NVIDIA_GPU_MEMORY_LIMIT"
#define PORTION "GPU_PORTION"
/* KAI writes it beside the portion, with its value. Other programs' variables are called
 * GPU_PORTION, too. */
#define PORTION_MARK "RUNAI_NUM_OF_GPUS"
#define MILLION 1000000u

/* More than any GPU has, and far from an overflow: 1 PiB. */
#define MEMORY_MAX (1ull << 50)
#define DIGITS_MAX 16

/* While they are read: a GPU's own variable counts before that of all. */
struct reading {
	uint64_t all, each[CONTAINER_LIMITS_GPUS_MAX];
	bool any;
};

/* A value of at most 63 characters that may stand in a message. */
static const char *value_text(const char *value, char buf[static 64])
{
	size_t used = 0;

	for (; value[used] && used < 63; used++)
		buf[used] = isprint((unsigned char)value[used]) && (unsigned char)value[used] < 127
				    ? value[used]
				    : '?';
	buf[used] = '\0';
	return buf;
}

/* "2027m": digits, and k, m or g of either case; without one, bytes. -1: it is none. */
static int memory_parse(const char *value, uint64_t *ret)
{
	static const char units[] = "kmg";
	size_t digits = strspn(value, "0123456789");
	char letter = (char)tolower((unsigned char)value[digits]);
	const char *unit = letter ? strchr(units, letter) : NULL;

	if (!digits || digits > DIGITS_MAX || (letter && (!unit || value[digits + 1])))
		return -1;
	uint64_t number = strtoull(value, NULL, 10);
	unsigned shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;

	if (!number || number > MEMORY_MAX >> shift)
		return -1;
	*ret = number << shift;
	return 0;
}

/* "30"; 0 and 100 are no limit, as HAMi has it. */
static int percent_parse(const char *value, uint64_t *ret)
{
	size_t digits = strspn(value, "0123456789");

	if (!digits || digits > 3 || value[digits])
		return -1;
	*ret = strtoull(value, NULL, 10);
	if (*ret > 100)
		return -1;
	*ret = *ret ? *ret : 100;
	return 0;
}

/* "0.50", as KAI writes it; up to 1. */
static int portion_parse(const char *value, uint32_t *ret)
{
	size_t whole = strspn(value, "0123456789");
	const char *rest = value + whole + (value[whole] == '.');
	size_t digits = strspn(rest, "0123456789");
	uint64_t ppm = strtoull(value, NULL, 10) * MILLION;
	uint64_t unit = MILLION / 10;

	if (whole > 1 || digits > 6 || rest[digits] || !(whole + digits))
		return -1;
	for (size_t i = 0; i < digits; i++, unit /= 10)
		ppm += (uint64_t)(rest[i] - '0') * unit;
	if (!ppm || ppm > MILLION)
		return -1;
	*ret = (uint32_t)ppm;
	return 0;
}

/* The value of a variable; NULL: it is another one. */
static const char *value_of(const char *entry, const char *name)
{
	size_t length = strlen(name);

	return !strncmp(entry, name, length) && entry[length] == '=' ? entry + length + 1 : NULL;
}

static int portion_take(const char *portion, const char *mark, struct container_limits *to,
			struct error *err)
{
	char text[64];

	if (!portion || !mark || strcmp(portion, mark) != 0)
		return 0;
	if (portion_parse(portion, &to->portion_ppm) < 0) {
		error_set(err, EXIT_CODE_USAGE, PORTION ": '%s' is no part of a GPU",
			  value_text(portion, text));
		error_hint(err, "right would be 0.50");
		return -EXIT_CODE_USAGE;
	}
	to->any = true;
	return 0;
}

/* "4096": MiB. 0 with *ret as bytes, which is 0 where the variable is not there. */
static int mib_parse(const char *name, const char *value, uint64_t *ret, struct error *err)
{
	size_t digits = value ? strspn(value, "0123456789") : 0;
	char text[64];

	*ret = 0;
	if (!value)
		return 0;
	if (digits && digits <= DIGITS_MAX && !value[digits])
		*ret = strtoull(value, NULL, 10);
	if (*ret && *ret <= MEMORY_MAX / MIB(1)) {
		*ret *= MIB(1);
		return 0;
	}
	error_set(err, EXIT_CODE_USAGE, "%s: '%s' is no number of MiB", name,
		  value_text(value, text));
	error_hint(err, "right would be 4096");
	return -EXIT_CODE_USAGE;
}

/* A request says how much of a limit is sure. A slice has all of its memory for sure. */
static int nvidia_take(const char *request, const char *limit, uint64_t *ret, struct error *err)
{
	uint64_t sure, most;
	int rc = mib_parse(REQUEST, request, &sure, err);

	if (rc == 0)
		rc = mib_parse(LIMIT, limit, &most, err);
	if (rc < 0)
		return rc;
	if (sure && most && sure != most) {
		error_set(err, EXIT_CODE_USAGE,
			  REQUEST " is %" PRIu64 " MiB and " LIMIT " %" PRIu64
				  " MiB, and a slice has one size",
			  sure / MIB(1), most / MIB(1));
		error_hint(err, "give both the same number, or one of them alone");
		return -EXIT_CODE_USAGE;
	}
	*ret = most ? most : sure;
	return 0;
}

static void lower(uint64_t *to, uint64_t value)
{
	if (!*to || value < *to)
		*to = value;
}

/* The field for the value of such a variable; NULL: `name` is another variable. */
static uint64_t *place_of(struct reading *reading, const char *prefix, const char *name,
			  size_t length)
{
	size_t prefix_length = strlen(prefix);
	const char *number = name + prefix_length + 1;

	if (length < prefix_length || strncmp(name, prefix, prefix_length) != 0)
		return NULL;
	if (length == prefix_length)
		return &reading->all;
	size_t digits = length - prefix_length - 1;
	if (name[prefix_length] != '_' || !digits || digits > 2 ||
	    strspn(number, "0123456789") != digits)
		return NULL;
	unsigned long index = strtoul(number, NULL, 10);
	return index < CONTAINER_LIMITS_GPUS_MAX ? &reading->each[index] : NULL;
}

/* 0 also where it is another variable. */
static int variable_take(struct reading *reading, const char *prefix, const char *entry,
			 int (*parse)(const char *value, uint64_t *ret), const char *example,
			 struct error *err)
{
	const char *value = strchr(entry, '=');
	char text[64];
	uint64_t number, *to;

	if (!value || !(to = place_of(reading, prefix, entry, (size_t)(value - entry))))
		return 0;
	if (parse(value + 1, &number) < 0) {
		error_set(err, EXIT_CODE_USAGE, "%.*s: '%s' is no limit", (int)(value - entry),
			  entry, value_text(value + 1, text));
		error_hint(err, "right would be %s", example);
		return -EXIT_CODE_USAGE;
	}
	lower(to, number);
	reading->any = true;
	return 0;
}

/* The values of variables that are for all GPUs; NULL: a variable is not there. */
struct plain {
	const char *visible, *portion, *mark, *request, *limit;
};

static void plain_take(const char *entry, struct plain *to)
{
	const struct {
		const char *name, **value;
	} names[] = {
		{VISIBLE, &to->visible}, {PORTION, &to->portion}, {PORTION_MARK, &to->mark},
		{REQUEST, &to->request}, {LIMIT, &to->limit},
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (value_of(entry, names[i].name))
			*names[i].value = value_of(entry, names[i].name);
}

/* The limit of a GPU: its own variable's, else that of all. NVIDIA's lowers it. */
static void limit_put(const struct reading *memory, const struct reading *percent, uint64_t nvidia,
		      size_t i, struct container_limits *to)
{
	to->memory[i] = memory->each[i] ? memory->each[i] : memory->all;
	if (nvidia)
		lower(&to->memory[i], nvidia);
	to->percent[i] = (uint32_t)(percent->each[i] ? percent->each[i] : percent->all);
	to->percent[i] = to->percent[i] == 100 ? 0 : to->percent[i];
}

int container_limits_read(const json_t *environment, struct container_limits *ret,
			  struct error *err)
{
	struct reading memory = {0}, percent = {0};
	struct plain plain = {0};
	uint64_t nvidia = 0;
	const json_t *entry;
	int rc = 0;
	size_t i;

	*ret = (struct container_limits){0};
	json_array_foreach((json_t *)environment, i, entry)
	{
		const char *text = json_string_value(entry);

		if (!text)
			continue;
		rc = variable_take(&memory, MEMORY, text, memory_parse, "2027m", err);
		if (rc == 0)
			rc = variable_take(&percent, PERCENT, text, percent_parse, "30", err);
		if (rc < 0)
			return rc;
		plain_take(text, &plain);
	}
	ret->visible = plain.visible;
	rc = nvidia_take(plain.request, plain.limit, &nvidia, err);
	if (rc < 0)
		return rc;
	for (i = 0; i < CONTAINER_LIMITS_GPUS_MAX; i++)
		limit_put(&memory, &percent, nvidia, i, ret);
	ret->any = memory.any || percent.any || nvidia;
	return portion_take(plain.portion, plain.mark, ret, err);
}

uint64_t container_limits_memory(const struct container_limits *limits, size_t gpus)
{
	uint64_t least = 0;

	for (size_t i = 0; i < gpus && i < CONTAINER_LIMITS_GPUS_MAX; i++)
		if (limits->memory[i])
			lower(&least, limits->memory[i]);
	return least;
}

uint32_t container_limits_percent(const struct container_limits *limits, size_t gpus)
{
	uint64_t least = 0;

	for (size_t i = 0; i < gpus && i < CONTAINER_LIMITS_GPUS_MAX; i++)
		if (limits->percent[i])
			lower(&least, limits->percent[i]);
	return (uint32_t)least;
}

/* Whether a list such as "0,12" has a number; an empty one has all. */
static bool ids_have(const char *ids, json_int_t index)
{
	char *end;

	for (const char *at = ids; *at; at = *end == ',' ? end + 1 : end) {
		if (strtol(at, &end, 10) == index)
			return true;
		if (end == at)
			return false;
	}
	return !*ids;
}

uint64_t container_limits_memory_of(const struct container_limits *limits, const json_t *gpus,
				    const char *ids, size_t count)
{
	uint64_t least = container_limits_memory(limits, count);
	const json_t *gpu;
	size_t i;

	json_array_foreach((json_t *)gpus, i, gpu)
	{
		json_int_t bytes = json_integer_value(json_object_get(gpu, "memory_bytes")) -
				   json_integer_value(json_object_get(gpu, "reserved_bytes"));

		if (limits->portion_ppm && bytes > 0 &&
		    ids_have(ids, json_integer_value(json_object_get(gpu, "index"))))
			lower(&least,
			      (uint64_t)bytes / MIB(1) * limits->portion_ppm / MILLION * MIB(1));
	}
	return least;
}

/* ---- GPUs -------------------------------------------------------------------------------- */

bool container_limits_no_gpu(const char *visible)
{
	return visible && (!*visible || !strcmp(visible, "none") || !strcmp(visible, "void"));
}

/* The number of a GPU that is named by that or by its UUID; negative: there is none. */
static json_int_t gpu_index(const char *name, size_t length, const json_t *gpus)
{
	bool number = length < 4 && strspn(name, "0123456789") >= length;
	const json_t *gpu;
	size_t i;

	json_array_foreach((json_t *)gpus, i, gpu)
	{
		const char *uuid = json_string_value(json_object_get(gpu, "uuid"));
		json_int_t index = json_integer_value(json_object_get(gpu, "index"));

		if (number ? index == strtol(name, NULL, 10)
			   : uuid && strlen(uuid) == length && !strncasecmp(uuid, name, length))
			return index;
	}
	return -1;
}

int container_limits_gpus(const char *visible, const json_t *gpus,
			  char ret_ids[static CONTAINER_GPU_IDS_SIZE], size_t *ret_count,
			  struct error *err)
{
	char text[64];
	size_t used = 0;

	ret_ids[0] = '\0';
	*ret_count = 0;
	if (!visible || !strcmp(visible, "all") || container_limits_no_gpu(visible))
		return 0;
	for (const char *at = visible, *next; at; at = next) {
		size_t length = strcspn(at, ",");
		json_int_t index = length ? gpu_index(at, length, gpus) : -1;

		next = at[length] ? at + length + 1 : NULL;
		if (index < 0 || *ret_count == CONTAINER_LIMITS_GPUS_MAX)
			return error_set(err, EXIT_CODE_USAGE,
					 VISIBLE ": '%s' names no GPU of this host",
					 value_text(visible, text));
		used += (size_t)snprintf(ret_ids + used, CONTAINER_GPU_IDS_SIZE - used, "%s%d",
					 used ? "," : "", (int)index);
		if (used >= CONTAINER_GPU_IDS_SIZE)
			return error_set(err, EXIT_CODE_USAGE, VISIBLE ": it names too many GPUs");
		++*ret_count;
	}
	return 0;
}
