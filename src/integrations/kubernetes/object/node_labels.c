#include "integrations/kubernetes/object/node_labels.h"

#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/units.h"

static const char *label(const json_t *labels, const char *key)
{
	return json_string_value(json_object_get(labels, key));
}

bool node_labels_mig(const json_t *labels)
{
	const char *runai = label(labels, NODE_LABEL_RUNAI);
	const char *clearml = label(labels, NODE_LABEL_CLEARML);

	return (runai && !strcmp(runai, "true")) || (clearml && !strcmp(clearml, "mig"));
}

/* 0 with *ret, or negative. */
static int replicas_parse(const char *text, uint64_t *ret)
{
	struct error ignored;

	return units_parse_count(text, NODE_LABEL_REPLICAS, 0, NODE_REPLICAS_MAX, ret, &ignored);
}

unsigned node_labels_replicas(const json_t *labels)
{
	const char *text = label(labels, NODE_LABEL_REPLICAS);
	uint64_t replicas;

	return text && replicas_parse(text, &replicas) == 0 && replicas > 1 ? (unsigned)replicas
									    : 0;
}

/* Returns 1. `right`: a value that means something. */
static unsigned wrong(const char *key, const char *value, const char *why, const char *right,
		      struct error *err)
{
	error_set(err, EXIT_CODE_USAGE, "label %s: '%.64s' %s", key, value, why);
	error_hint(err, "kubectl label --overwrite node NODE %s=%s", key, right);
	return 1;
}

unsigned node_labels_check(const json_t *labels, bool replicas, struct error *ret)
{
	const char *count = label(labels, NODE_LABEL_REPLICAS);
	const char *runai = label(labels, NODE_LABEL_RUNAI);
	const char *clearml = label(labels, NODE_LABEL_CLEARML);
	unsigned found = 0;
	uint64_t ignored;

	memset(ret, 0, NODE_LABELS * sizeof(*ret));
	if (replicas && count && replicas_parse(count, &ignored) < 0)
		found += wrong(NODE_LABEL_REPLICAS, count,
			       "is no number from 1 to 1000; the GPUs have no such limit of slices",
			       "4", &ret[0]);
	if (runai && strcmp(runai, "true") != 0 && strcmp(runai, "false") != 0)
		found += wrong(NODE_LABEL_RUNAI, runai, "sets no role; right would be true", "true",
			       &ret[1]);
	/* Other values are ClearML's own. */
	if (clearml && strcmp(clearml, "mig") != 0 && !strcasecmp(clearml, "mig"))
		found += wrong(NODE_LABEL_CLEARML, clearml, "sets no role; right would be mig",
			       "mig", &ret[2]);
	return found;
}
