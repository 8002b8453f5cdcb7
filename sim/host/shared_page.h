/* Memory that the server writes and clients map read-only: sealed, so that no client can shrink it
 * or map it writable. */
#pragma once

#include <stddef.h>

/* Zeroed. NULL: failed (errno). The caller owns the mapping and *ret_fd. */
void *shared_page_new(const char *name, size_t size, int *ret_fd);
/* Unmaps and closes; page may be NULL. */
void shared_page_free(void *page, size_t size, int *fd);
