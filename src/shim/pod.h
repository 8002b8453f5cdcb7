/* A job that is a pod of a cluster: carve-kubernetes runs in place of the command. */
#pragma once

struct error;
struct record_place;
struct shim_spec;

/* Its words, NULL-terminated; never freed. The pod's template is written beside the record. NULL
 * with *err. */
char **shim_pod_argv(const struct shim_spec *spec, const struct record_place *place,
		     struct error *err);
