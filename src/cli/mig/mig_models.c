#include "cli/mig/mig_models.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "base/units.h"
#include "container/json_file.h"
#include "slice/places.h"

#define PART_SIZE 64

extern char **environ;

static int spec_fail(struct error *err, const char *part, const char *why)
{
	error_set(err, EXIT_CODE_USAGE, "--gpus: '%.48s': %s", part, why);
	error_hint(err, "MODEL[:COUNT],... e.g. h100-80gb:8; `carve sim list` names the models");
	return -EXIT_CODE_USAGE;
}

static const json_t *model_find(const json_t *list, const char *key)
{
	const json_t *model;
	size_t i;

	json_array_foreach(list, i, model)
	{
		const char *own = json_string_value(json_object_get(model, "key"));

		if (own && !strcmp(own, key))
			return model;
	}
	return NULL;
}

static uint64_t number_of(const json_t *object, const char *key)
{
	json_int_t value = json_integer_value(json_object_get(object, key));

	return value < 0 ? 0 : (uint64_t)value;
}

static struct mig_profile profile_parse(const json_t *from)
{
	const json_t *engines = json_object_get(from, "engines"), *start;
	struct mig_profile p = {
		.memory_bytes = number_of(from, "memory_bytes"),
		.sms = (uint32_t)number_of(from, "sm_count"),
		.slices = (uint32_t)number_of(from, "slices"),
		.limit = (uint32_t)number_of(from, "instances"),
		.flags = mig_flags_of((uint32_t)number_of(from, "nvml_enum")),
		.size = (uint8_t)number_of(from, "size"),
	};
	size_t i;

	for (size_t e = 0; e < MIG_ENGINES; e++)
		p.engines[e] = (uint16_t)json_integer_value(json_array_get(engines, e));
	json_array_foreach(json_object_get(from, "starts"), i, start)
	{
		json_int_t at = json_integer_value(start);

		if (at >= 0 && at < MIG_UNITS_MAX)
			p.starts |= 1u << at;
	}
	return p;
}

static int die_add(struct mig_models *m, const json_t *model, const char *key, struct error *err)
{
	const json_t *profiles = json_object_get(model, "mig_profiles"), *from;
	struct mig_die *die = &m->dies[m->die_count];
	size_t i;

	json_array_foreach(profiles, i, from)
	{
		const char *name = json_string_value(json_object_get(from, "name"));

		if (die->profile_count == MIG_PROFILES_MAX)
			break;
		snprintf(m->names[m->die_count][die->profile_count], MIG_NAME_SIZE, "%s",
			 name ? name : "?");
		die->profile[die->profile_count++] = profile_parse(from);
	}
	if (die->profile_count == 0 || mig_die_init(die) < 0)
		return spec_fail(err, key, "this model has no MIG");
	m->die_count++;
	return 0;
}

/* "MODEL[:COUNT]", taken apart in place. */
static int part_add(struct mig_models *m, char *part, const json_t *list, struct error *err)
{
	char *colon = strchr(part, ':');
	uint64_t count = 1;
	int rc = 0;

	if (colon) {
		*colon = '\0';
		rc = units_parse_count(colon + 1, "--gpus", 1, MIG_MODELS_GPUS_MAX, &count, err);
	}
	if (rc < 0)
		return rc;
	const json_t *model = model_find(list, part);
	if (!model)
		return spec_fail(err, part, "no such GPU model");
	if (m->die_count == MIG_DIES_MAX)
		return spec_fail(err, part, "more kinds of GPUs than carve can tell apart");
	if (m->gpu_count + count > MIG_MODELS_GPUS_MAX)
		return spec_fail(err, part, "more than 10000 GPUs");
	rc = die_add(m, model, part, err);
	for (; rc == 0 && count > 0; count--)
		m->gpu_die[m->gpu_count++] = (uint16_t)(m->die_count - 1);
	return rc;
}

static int parts_add(struct mig_models *m, const char *spec, const json_t *list, struct error *err)
{
	for (const char *at = spec;; at++) {
		size_t length = strcspn(at, ",");
		char part[PART_SIZE];

		snprintf(part, sizeof(part), "%.*s", (int)MIN(length, sizeof(part) - 1), at);
		int rc = part_add(m, part, list, err);

		if (rc < 0)
			return rc;
		at += length;
		if (!*at)
			return 0;
	}
}

/* mig_models_read() with the list of models as `carve sim list --json` prints it. */
static int mig_models_parse(const char *spec, const json_t *list, struct mig_models *ret,
			    struct error *err)
{
	struct mig_models m = {
		.dies = calloc(MIG_DIES_MAX, sizeof(*m.dies)),
		.names = calloc(MIG_DIES_MAX, sizeof(*m.names)),
		.gpu_die = calloc(MIG_MODELS_GPUS_MAX, sizeof(*m.gpu_die)),
	};
	int rc = m.dies && m.names && m.gpu_die ? parts_add(&m, spec, list, err)
						: error_set(err, EXIT_CODE_FAILED, "out of memory");

	if (rc < 0)
		mig_models_free(&m);
	else
		*ret = m;
	return rc;
}

void mig_models_free(struct mig_models *models)
{
	free(models->dies);
	free(models->names);
	free(models->gpu_die);
	*models = (struct mig_models){0};
}

/* The program's output as JSON; NULL: it cannot be run, or prints no JSON. */
static json_t *json_of(const char *program)
{
	char *argv[] = {(char *)program, "list", "--json", NULL};
	posix_spawn_file_actions_t actions;
	json_t *json = NULL;
	int ends[2], status = -1;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return NULL;
	if (posix_spawn_file_actions_init(&actions) == 0) {
		posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
		if (posix_spawn(&pid, program, &actions, NULL, argv, environ) == 0) {
			close_fd(&ends[1]);
			json = json_fd_load(ends[0], JSON_FILE_MAX, 0);
			while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
				;
		}
		posix_spawn_file_actions_destroy(&actions);
	}
	close_fd(&ends[0]);
	close_fd(&ends[1]);
	return json;
}

json_t *mig_models_list(void)
{
	struct places places;
	struct error ignored;

	return places_find(&places, &ignored) < 0 ? NULL : json_of(places.simhost);
}

int mig_models_read(const char *spec, struct mig_models *ret, struct error *err)
{
	struct places places;
	int rc = places_find(&places, err);

	if (rc < 0)
		return rc;
	json_t *list = json_of(places.simhost);
	if (!json_is_array(list)) {
		error_set(err, EXIT_CODE_FAILED, "%.300s list --json: no list of models",
			  places.simhost);
		error_hint(err, "the simulated driver is in an installation from source, and in "
				"the package "
				"carve-sim");
		rc = -EXIT_CODE_FAILED;
	} else {
		rc = mig_models_parse(spec, list, ret, err);
	}
	json_decref(list);
	return rc;
}
