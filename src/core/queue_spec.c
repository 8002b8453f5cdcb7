#include "core/queue_spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/units.h"

#define MOST_MAX 100000u
#define EXAMPLE "for example: half_gpu=0.5 single_gpu=1 dual_gpus=2 many=1-4"

/* ---- queues ------------------------------------------------------------------------------ */

int queue_name_check(const char *name, struct error *err)
{
	static const char allowed[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
	size_t length = strlen(name);

	if (length && length < QUEUE_NAME_SIZE && strspn(name, allowed) == length &&
	    name[0] != '-' && name[0] != '.')
		return 0;
	error_set(err, EXIT_CODE_USAGE, "'%.64s' is not the name of a queue", name);
	error_hint(err, "1 to %d letters, digits and . _ -, beginning with a letter or digit",
		   QUEUE_NAME_SIZE - 1);
	return -EXIT_CODE_USAGE;
}

static int size_error(const struct queue_spec *spec, const char *text, const char *why,
		      struct error *err)
{
	error_set(err, EXIT_CODE_USAGE, "queue %s: '%.32s' %s", spec->name, text, why);
	error_hint(err, EXAMPLE);
	return -EXIT_CODE_USAGE;
}

/* Whole GPUs, `first` to `last` as they were typed. */
static int range_parse(const char *text, struct queue_spec *spec, struct error *err)
{
	char *end;
	unsigned long least = strtoul(text, &end, 10), most = 0;

	if (*end == '-' && end[1] >= '0' && end[1] <= '9')
		most = strtoul(end + 1, &end, 10);
	if (*end || !least || most < least)
		return size_error(spec, text, "is not a range of whole GPUs", err);
	if (most > PLACE_GPUS_MAX)
		return size_error(spec, text, "is more GPUs than a job can have", err);
	spec->size = QUEUE_SIZE_WHOLE;
	spec->gpus_min = (uint32_t)least;
	spec->gpus_max = (uint32_t)most;
	return 0;
}

static bool is_zero(const char *text)
{
	return strspn(text, "0.") == strlen(text);
}

static int size_parse(const char *text, struct queue_spec *spec, struct error *err)
{
	struct error ignored = {0};
	uint32_t share, whole;

	if (*text == '-')
		return size_error(spec, text, "is negative", err);
	if (*text >= '0' && *text <= '9' && strchr(text, '-'))
		return range_parse(text, spec, err);
	if (*text && is_zero(text) && *text != '.')
		return size_error(spec, text, "is no GPU at all", err);
	if (units_parse_gpu(text, &share, &whole, &ignored) < 0) {
		bool number = *text && strspn(text, "0123456789.") == strlen(text);

		return size_error(spec, text,
				  number && strtod(text, NULL) > 1
					  ? "is neither a fraction of one GPU nor whole GPUs"
					  : "is not a number of GPUs (0.001 at least)",
				  err);
	}
	if (whole > PLACE_GPUS_MAX)
		return size_error(spec, text, "is more GPUs than a job can have", err);
	spec->size = whole ? QUEUE_SIZE_WHOLE : QUEUE_SIZE_FRACTION;
	spec->share = share;
	spec->gpus_min = spec->gpus_max = whole;
	return 0;
}

static int setting_parse(const char *text, struct queue_spec *spec, struct error *err)
{
	uint64_t most;

	if (!strncmp(text, "docker=", 7)) {
		if (!text[7] || strlen(text + 7) >= sizeof(spec->image) || text[7] == '-')
			return size_error(spec, text, "names no image", err);
		snprintf(spec->image, sizeof(spec->image), "%s", text + 7);
		return 0;
	}
	if (strncmp(text, "max=", 4) != 0)
		return size_error(spec, text, "is neither max=K nor docker=IMAGE", err);
	if (units_parse_count(text + 4, "max", 1, MOST_MAX, &most, err) < 0)
		return size_error(spec, text + 4, "is not a number of jobs", err);
	spec->most = (uint32_t)most;
	return 0;
}

/* ",max=K,docker=IMAGE" at the end of `text`, which is cut off there. */
static int settings_parse(char *text, struct queue_spec *spec, struct error *err)
{
	char *comma = strchr(text, ',');

	while (comma) {
		char *next = strchr(comma + 1, ',');

		*comma = '\0';
		if (next)
			*next = '\0';
		int rc = setting_parse(comma + 1, spec, err);
		if (rc < 0)
			return rc;
		comma = next;
	}
	return 0;
}

/* Whether a list of names ("ipc,--init") has the option whose name is `length` long. */
static bool names(const char *list, const char *name, size_t length)
{
	while (*list) {
		list += strspn(list, ", -");
		size_t word = strcspn(list, ", ");

		if (word && word == length && !strncmp(list, name, length))
			return true;
		list += word;
	}
	return false;
}

const char *queue_container_refuse(const char *args, const char *allow, const char *deny)
{
	for (const char *at = args; *at; at += strcspn(at, "\n"), at += *at == '\n') {
		const char *name = at + strspn(at, "-");
		size_t length = strcspn(name, "=\n");

		if ((*allow && !names(allow, name, length)) || names(deny, name, length))
			return at;
	}
	return NULL;
}

int queue_spec_parse(const char *text, struct queue_spec *ret, struct error *err)
{
	struct queue_spec spec = {0};
	char copy[512];
	size_t length = strlen(text);

	if (length >= sizeof(copy)) {
		error_set(err, EXIT_CODE_USAGE, "'%.32s...' is not the name of a queue", text);
		return -EXIT_CODE_USAGE;
	}
	memcpy(copy, text, length + 1);
	char *size = copy + strcspn(copy, "=,"), delimiter = *size;

	*size = '\0';
	int rc = queue_name_check(copy, err);
	if (rc < 0)
		return rc;
	snprintf(spec.name, sizeof(spec.name), "%.*s", QUEUE_NAME_SIZE - 1, copy);
	*size = delimiter;
	if ((rc = settings_parse(size, &spec, err)) < 0)
		return rc;
	if (*size == '=' && (rc = size_parse(size + 1, &spec, err)) < 0)
		return rc;
	*ret = spec;
	return 0;
}

const char *queue_size_text(const struct queue_spec *spec, char buf[static QUEUE_SIZE_TEXT])
{
	if (spec->size == QUEUE_SIZE_FRACTION)
		snprintf(buf, QUEUE_SIZE_TEXT, "%g", spec->share / (double)SHARE_ONE);
	else if (spec->size == QUEUE_SIZE_WHOLE && spec->gpus_min != spec->gpus_max)
		snprintf(buf, QUEUE_SIZE_TEXT, "%u-%u", spec->gpus_min, spec->gpus_max);
	else if (spec->size == QUEUE_SIZE_WHOLE)
		snprintf(buf, QUEUE_SIZE_TEXT, "%u", spec->gpus_max);
	else
		buf[0] = '\0';
	return buf;
}

/* ---- GPUs -------------------------------------------------------------------------------- */

static int gpus_error(const char *text, const char *why, struct error *err)
{
	error_set(err, EXIT_CODE_USAGE, "--gpus: '%.64s' %s", text, why);
	error_hint(err, "for example: --gpus 0-2, --gpus 0,1 or --gpus all");
	return -EXIT_CODE_USAGE;
}

/* One number or range at *at, which is moved behind it. 0, or negative: it is none. */
static int gpu_range(const char **at, unsigned long *ret_first, unsigned long *ret_last)
{
	char *end;

	if (**at < '0' || **at > '9')
		return -1;
	*ret_first = *ret_last = strtoul(*at, &end, 10);
	if (*end == '-') {
		if (end[1] < '0' || end[1] > '9')
			return -1;
		*ret_last = strtoul(end + 1, &end, 10);
	}
	*at = end;
	return *ret_last < *ret_first ? -1 : 0;
}

int queue_gpus_parse(const char *text, uint64_t *ret_mask, struct error *err)
{
	static const char between[] = ", \t";
	const char *at = text + strspn(text, " \t");
	uint64_t mask = 0;

	if (!strcmp(at, "all")) {
		*ret_mask = UINT64_MAX;
		return 0;
	}
	if (strchr(at, ':'))
		return gpus_error(text, "names MIG instances; carve makes those on demand", err);
	do {
		unsigned long first, last;

		if (gpu_range(&at, &first, &last) < 0 || (*at && !strchr(between, *at)))
			return gpus_error(text, "is not a list of GPUs", err);
		if (last >= PLACE_GPUS_MAX)
			return gpus_error(text, "names a GPU that there is not", err);
		for (unsigned long i = first; i <= last; i++) {
			if (mask >> i & 1)
				return gpus_error(text, "names a GPU twice", err);
			mask |= 1ull << i;
		}
		at += strspn(at, between);
	} while (*at);
	*ret_mask = mask;
	return 0;
}

const char *queue_gpus_text(uint64_t mask, char buf[static QUEUE_GPUS_TEXT])
{
	size_t used = 0;

	buf[0] = '\0';
	if (mask == UINT64_MAX)
		return memcpy(buf, "all", sizeof("all"));
	for (unsigned i = 0; i < 64; i++) {
		unsigned last = i;

		if (!(mask >> i & 1))
			continue;
		while (last < 63 && mask >> (last + 1) & 1)
			last++;
		used += (size_t)snprintf(buf + used, QUEUE_GPUS_TEXT - used, "%s%u",
					 used ? "," : "", i);
		if (last > i)
			used += (size_t)snprintf(buf + used, QUEUE_GPUS_TEXT - used, "-%u", last);
		i = last;
	}
	return buf;
}
