/* Adds a hook to the text of a container's config.json. The rest stays byte for byte: it has
 * numbers that a parser of JSON may not hold (limits of 2^64 - 1). Pure. */
#pragma once

#include <stddef.h>

/* `hook`: the JSON of one hook of the stage createRuntime. The new text, zero-terminated, which the
 * caller frees, with *ret_size; NULL: `text` is not an object of JSON, its hooks are not as the OCI
 * has them, or there is no memory. */
char *oci_hook_splice(const char *text, size_t size, const char *hook, size_t *ret_size);
