#include "integrations/kubernetes/pod/pod_sizes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"

#define DIGITS "0123456789"
#define MEMORY_MIB_MAX 134217728L
#define DEVICES_MAX 32L
#define CLEARML_LABEL "clearml-injector/fraction"
#define CLEARML_COUNT "required-resources"

/* A number without a sign, a blank, a leading zero or a point. */
static bool is_count(const char *text, long max)
{
	size_t length = strlen(text);

	return length && length < 10 && *text != '0' && strspn(text, DIGITS) == length &&
	       strtol(text, NULL, 10) <= max;
}

/* A decimal number of at most `places` digits behind its point. */
static bool is_decimal(const char *text, size_t places, double *ret)
{
	size_t whole = strspn(text, DIGITS);
	const char *point = text + whole;
	size_t part = *point == '.' ? strspn(point + 1, DIGITS) : 0;

	if (*point == '.' ? !part || part > places || point[1 + part] : !whole || *point)
		return false;
	*ret = strtod(text, NULL);
	return true;
}

static bool is_fraction(const char *text)
{
	double value;

	return is_decimal(text, 6, &value) && strspn(text, DIGITS) <= 1 && value >= 0.001 &&
	       value <= 1;
}

static bool is_memory(const char *text)
{
	return is_count(text, MEMORY_MIB_MAX);
}

static bool is_devices(const char *text)
{
	return is_count(text, DEVICES_MAX);
}

static bool is_cores(const char *text)
{
	return is_count(text, 100);
}

static bool is_clearml_fraction(const char *text)
{
	static const char *const known[] = {"0.125", "0.250", "0.375", "0.500",
					    "0.625", "0.750", "0.875"};

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (!strcmp(text, known[i]))
			return true;
	return false;
}

static const struct {
	const char *kind, *key;
	bool (*is_right)(const char *text);
	const char *wrong, *right;
} sizes[] = {
	{"annotation", "gpu-fraction", is_fraction, "no fraction of a GPU",
	 "0.5 (0.001 to 1, with six digits behind the point at most)"},
	{"annotation", "gpu-memory", is_memory, "no number of MiB", "4096 (134217728 at most)"},
	{"annotation", "gpu-fraction-num-devices", is_devices, "no number from 1 to 32", "2"},
	{"annotation", "carve.dev/cores", is_cores, "no per cent of a GPU's time from 1 to 100",
	 "30"},
	{"label", CLEARML_LABEL, is_clearml_fraction, "no size of ClearML's",
	 "0.125, 0.250, 0.375, 0.500, 0.625, 0.750 or 0.875"},
};

static int refuse(const char *kind, const char *key, const char *text, const char *wrong,
		  const char *right, struct error *err)
{
	return error_set(err, EXIT_CODE_USAGE, "%s %s: '%.40s' is %s; right would be %s", kind, key,
			 text, wrong, right);
}

int pod_sizes_check(const json_t *metadata, struct error *err)
{
	const json_t *labels = json_object_get(metadata, "labels");
	const char *count = json_string_value(json_object_get(labels, CLEARML_COUNT));
	double ignored;

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		const json_t *from = json_object_get(
			metadata, !strcmp(sizes[i].kind, "label") ? "labels" : "annotations");
		const char *text = json_string_value(json_object_get(from, sizes[i].key));

		if (text && !sizes[i].is_right(text))
			return refuse(sizes[i].kind, sizes[i].key, text, sizes[i].wrong,
				      sizes[i].right, err);
	}
	/* Alone it may mean anything. */
	if (count && json_object_get(labels, CLEARML_LABEL) && !is_decimal(count, 18, &ignored))
		return refuse("label", CLEARML_COUNT, count, "no number of GPUs", "0.5", err);
	return 0;
}
