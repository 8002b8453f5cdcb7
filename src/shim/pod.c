#include "shim/pod.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "container/container_args.h"
#include "proto/shim.h"
#include "shim/container.h"
#include "shim/record.h"
#include "shim/spec.h"

#define PROGRAM "carve-kubernetes"

static void option_add(struct words *words, const json_t *pod, const char *key, const char *option)
{
	if (*json_text(pod, key))
		words_add(words, "--%s=%s", option, json_text(pod, key));
}

static int template_write(const struct shim_spec *spec, const char *path)
{
	cleanup_free char *text = json_dumps(json_object_get(spec->pod, "template"), JSON_COMPACT);
	char temporary[PATH_MAX];

	if (!text || snprintf(temporary, PATH_MAX, "%s.new", path) >= PATH_MAX)
		return -ENAMETOOLONG;
	return file_replace(path, temporary, text, strlen(text), 0600);
}

char **shim_pod_argv(const struct shim_spec *spec, const struct record_place *place,
		     struct error *err)
{
	char program[PATH_MAX], path[PATH_MAX];
	char **argv = shim_spec_argv(spec);
	struct words words = {0};

	if (*spec->text.in) {
		error_set(err, EXIT_CODE_RUN_FAILED,
			  "a pod has no standard input: enqueue it without --input");
		return NULL;
	}
	snprintf(path, sizeof(path), "%.3800s/%.200s" SHIM_POD, place->dir, place->name);
	int rc = argv ? template_write(spec, path) : -ENOMEM;
	if (rc < 0) {
		error_set(err, EXIT_CODE_RUN_FAILED, "%.300s: %s", path, strerrordesc_np(-rc));
		return NULL;
	}
	shim_program_find(PROGRAM, program);
	words_add(&words, "%s", program);
	words_add(&words, "run");
	words_add(&words, "--pod-template=%s", path);
	words_add(&words, "--state-file=%s/%s" SHIM_POD_STATE, place->dir, place->name);
	words_add(&words, "--grace=%lld",
		  (long long)json_integer_value(json_object_get(spec->pod, "grace_s")));
	option_add(&words, spec->pod, "name", "name");
	option_add(&words, spec->pod, "namespace", "namespace");
	option_add(&words, spec->pod, "api", "api");
	option_add(&words, spec->pod, "token_file", "token-file");
	option_add(&words, spec->pod, "ca_file", "ca-file");
	if (*spec->text.image)
		words_add(&words, "--image=%s", spec->text.image);
	option_add(&words, spec->pod, "fraction", "fraction");
	option_add(&words, spec->pod, "gpu_memory", "gpu-memory");
	/* The file of `carve enqueue -o` has what earlier attempts printed, too. */
	if (!*spec->text.out || spec->run.attempt <= 1)
		words_add(&words, "--log-anew");
	shim_spec_environment(&words, spec);
	words_add(&words, "--");
	for (; *argv; argv++)
		words_add(&words, "%s", *argv);
	return words.list;
}
