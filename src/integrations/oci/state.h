/* The input of a hook: a runtime's state on standard input, and the container's config.json. None
 * of it is trusted beyond its meaning: the texts are bounded, and paths inside the container are
 * resolved in its root. */
#pragma once

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct error;

#define OCI_ID_SIZE 256
#define OCI_STATE_MAX (1u << 20)
#define OCI_CONFIG_MAX (16u << 20)

struct oci_container {
	char id[OCI_ID_SIZE];
	pid_t pid;
	uint64_t birth; /* the birth of that process (base/process.h), as oci_process_check() saw
			   it; 0: not yet */
	char bundle[PATH_MAX];
	char root[PATH_MAX]; /* the root file system, as the runtime has it */
	json_t *annotations; /* object; owned, NULL: none */
	json_t *environment; /* array of its first process's variables; owned, NULL: none */
};

/* Reads the state. 0, or negative with *err set. Pure. */
int oci_state_parse(const char *text, size_t size, struct oci_container *ret, struct error *err);
/* Adds what the configuration says. Likewise. */
int oci_config_parse(const json_t *config, struct oci_container *to, struct error *err);
/* Whether it is the first container of a pod of Kubernetes, which holds the pod's namespaces and
 * has the pod's annotations, too. Only a CRI runtime is believed: users of others name annotations
 * themselves. Pure. */
bool oci_is_sandbox(const struct oci_container *container);
/* Whether a CRI runtime says that it made the container, for a pod of Kubernetes. A user who starts
 * containers of other runtimes can have theirs say so, too. Pure. */
bool oci_is_pods(const struct oci_container *container);
/* Whether the container has a GPU's device nodes. Pure. */
bool oci_config_has_gpu(const json_t *config);
/* Whether carve-hook is a hook of it. */
bool oci_config_has_hook(const json_t *config);
/* Whether a device of CDI, of a size or of the image's, makes the container's slice: its hook has
 * arguments of its own. Pure. */
bool oci_config_has_device_hook(const json_t *config);
/* Whether a hook of carve's registers the container for a session, and looks at its mounts. A CDI
 * device of a session or `carve podman run` gave it the slice. Only an engine's
 * administrator names hooks. Pure. */
bool oci_config_is_registered(const json_t *config);
/* The ID of another session that such a hook registers the container for; NULL: there is none. It
 * points into `config`. Pure. */
const char *oci_config_registered_beside(const json_t *config, const char *session);
/* The labels in that hook's arguments (object; owned by the caller), empty: the image's are meant.
 * NULL: there is no such hook. Pure. */
json_t *oci_config_device_labels(const json_t *config);
/* The stamp among these arguments: the GPU whose nodes the device has. "": there is none. Borrowed.
 */
const char *oci_config_device_stamp(const json_t *config);
/* Whether the first such hook joins a session: carve's runtime or its hook of the stage precreate
 * has made one, and has put that hook before a device's. Pure. */
bool oci_config_has_session(const json_t *config);
/* Adds "NAME=VALUE" to an object. False: it is not one. */
bool oci_label_add(json_t *labels, const char *text);
/* Finds out which container of podman's a configuration is of: its ID, and its bundle, from the
 * root file system and the mounts that podman makes. False: it is not of podman's. Pure. */
bool oci_podman_container(const json_t *config, struct oci_container *ret);
void oci_container_clear(struct oci_container *container);
