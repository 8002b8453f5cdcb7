#include "host/spec.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/macros.h"

/* Longest part of a SPEC that is taken in; anything longer is no model. */
#define PART_SIZE 64

static const struct spec_driver drivers[] = {
	{.branch = 535, .version = "535.247.01", .cuda_version = 12020},
	{.branch = 550, .version = "550.163.01", .cuda_version = 12040},
	{.branch = 580, .version = "580.95.05", .cuda_version = 13000},
	{.branch = 595, .version = "595.45.04", .cuda_version = 13020},
	{.branch = 610, .version = "610.43.02", .cuda_version = 13030},
	{.branch = 615, .version = "615.36.01", .cuda_version = 13040},
};

const struct spec_driver *spec_driver_find(const char *text, struct error *err)
{
	char branch[16];

	for (size_t i = 0; i < ARRAY_SIZE(drivers); i++) {
		snprintf(branch, sizeof(branch), "%u", drivers[i].branch);
		if (!strcmp(branch, text))
			return &drivers[i];
	}
	error_set(err, EXIT_CODE_USAGE, "--driver: '%.32s': no such driver is simulated", text);
	error_hint(err, "one of 535, 550, 580, 595, 610, 615, e.g. --driver 550");
	return NULL;
}

static int part_fail(struct error *err, const char *part, const char *why)
{
	error_set(err, EXIT_CODE_USAGE, "--gpus: '%s': %s", part, why);
	error_hint(err,
		   "MODEL[:COUNT][+mig],... e.g. h100-80gb:2,a100-40gb+mig; "
		   "`%s list` names the models",
		   program_invocation_short_name);
	return -EXIT_CODE_USAGE;
}

/* Names the models that begin with `key`, as "h200" begins two of them. */
static int part_unknown(struct error *err, const char *part, const char *key)
{
	char names[160] = "";
	size_t count, length = 0, found = 0;
	const struct sim_model *models = sim_models(&count);

	part_fail(err, part, "no such GPU model");
	for (size_t i = 0; i < count && *key; i++) {
		if (strncasecmp(models[i].key, key, strlen(key)) != 0)
			continue;
		if (length + strlen(models[i].key) + sizeof(", ") > sizeof(names))
			break; /* so many that the list is the better answer */
		length += (size_t)snprintf(names + length, sizeof(names) - length, "%s%s",
					   found++ ? ", " : "", models[i].key);
	}
	if (found)
		error_hint(err, "models that begin so: %s; e.g. %.*s:2", names,
			   (int)strcspn(names, ","), names);
	return -EXIT_CODE_USAGE;
}

/* Splits the part in place; *ret_count is 1 where none is written. */
static int part_count(char *part, const char *whole, unsigned long *ret_count, struct error *err)
{
	char *colon = strchr(part, ':'), *end;

	*ret_count = 1;
	if (!colon)
		return 0;
	*colon = '\0';
	const char *digits = colon + 1;
	if (strspn(digits, "0123456789") == 0 || strlen(digits) > 4)
		return part_fail(err, whole, "the count after ':' must be a number from 1 to 64");
	*ret_count = strtoul(digits, &end, 10);
	if (*end || *ret_count < 1 || *ret_count > WIRE_GPUS_MAX)
		return part_fail(err, whole, "the count after ':' must be a number from 1 to 64");
	return 0;
}

static int part_parse(const char *whole, struct spec *spec, struct error *err)
{
	char part[PART_SIZE];
	unsigned long count;

	snprintf(part, sizeof(part), "%s", whole);
	char *plus = strchr(part, '+');
	if (plus && strcmp(plus, "+mig") != 0)
		return part_fail(err, whole, "only '+mig' can follow a model");
	if (plus)
		*plus = '\0';
	if (part_count(part, whole, &count, err) < 0)
		return -EXIT_CODE_USAGE;
	const struct sim_model *model = sim_model_find(part);
	if (!model)
		return part_unknown(err, whole, part);
	if (plus && !model->mig_class)
		return part_fail(err, whole, "this model has no MIG");
	if (spec->gpu_count + count > WIRE_GPUS_MAX)
		return part_fail(err, whole, "a host has at most 64 GPUs");
	for (unsigned long i = 0; i < count; i++)
		spec->gpu[spec->gpu_count++] = (struct spec_gpu){.model = model, .mig = plus};
	return 0;
}

int spec_parse(const char *text, struct spec *ret, struct error *err)
{
	struct spec spec = {0};

	for (const char *at = text;; at++) {
		size_t length = strcspn(at, ",");
		char part[PART_SIZE];

		snprintf(part, sizeof(part), "%.*s", (int)MIN(length, sizeof(part) - 1), at);
		if (length >= sizeof(part))
			return part_fail(err, part, "no such GPU model");
		if (part_parse(part, &spec, err) < 0)
			return -EXIT_CODE_USAGE;
		at += length;
		if (!*at)
			break;
	}
	*ret = spec;
	return 0;
}
