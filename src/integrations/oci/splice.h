/* Adds to the text of a container's config.json. The rest stays byte for byte: it has numbers that
 * a parser of JSON may not hold (limits of 2^64 - 1). All are pure. Their results are
 * zero-terminated, with *ret_size, and freed by the caller. NULL: `text` is not an object of JSON,
 * what is at the place is not as the OCI has it, or there is no memory. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* A device node of the host, at the same path in the container. */
struct oci_device {
	char path[64];
	unsigned major, minor, mode;
};

/* `hook`: the JSON of one hook of the stage createRuntime. */
char *oci_hook_splice(const char *text, size_t size, const char *hook, size_t *ret_size);
/* Adds device nodes, and rules that let the container open them: the last ones, which count before
 * those that are there. `count` is not 0. */
char *oci_devices_splice(const char *text, size_t size, const struct oci_device *list, size_t count,
			 size_t *ret_size);
/* Takes out, in place, hooks of the stage createRuntime that `carve hook install` has added: they
 * do nothing beside one that has a session, and each is a process. `text` is zero-terminated.
 * Returns the new size. */
size_t oci_installed_hooks_drop(char *text, size_t size);
/* Lists of capabilities that podman has, and leaves out of the text as they are empty. Reading it
 * back, podman sees a change there, and compares both texts line by line for its log. Returns where
 * *ret, the missing ones, may be put in. */
size_t oci_lists_missing(const char *text, const char **ret);
/* The text without its filter of system calls: most of it, and nothing of carve's concern. */
char *oci_seccomp_drop(const char *text, size_t size, size_t *ret_size);
