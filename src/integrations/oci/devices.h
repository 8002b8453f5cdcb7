/* The GPU's device nodes of a container that its runtime is about to make, or has made. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "integrations/oci/splice.h"
#include "integrations/oci/state.h"

struct error;

#define OCI_DEVICES_MAX 32

/* The device nodes of the edits (container/edits.h) that are there. Returns how many. */
size_t oci_devices_list(const json_t *edits, struct oci_device list[static OCI_DEVICES_MAX]);
/* Whether the container's config.json lets it open a character device. Pure. */
bool oci_config_allows(const json_t *config, unsigned major, unsigned minor);
/* Whether rules of devices bind the containers of runtimes that this process starts: root's. A hook
 * that runs after the container's cgroup was made cannot add rules with version 2. With version 1
 * systemd does not know what it added: `systemctl daemon-reload` takes that away. */
bool oci_devices_have_rules(void);
/* Lets the container open the nodes of the edits, and drops those that config.json has already. A
 * cgroup of version 1 takes the rules; one of version 2 does not. There a container that may not
 * open the nodes by its config.json is refused. 0, or negative with *err set. */
int oci_devices_allow(const struct oci_container *container, const json_t *config, json_t *edits,
		      struct error *err);
