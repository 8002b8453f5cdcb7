/* One call of gRPC to a server at a Unix socket, by libcurl's HTTP/2. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct error;

/* Larger answers are refused. */
#define GRPC_ANSWER_MAX (16u << 20)

/* Calls the method `path` ("/package.Service/Method") with a message that is empty. Blocks. 0 with
 * the one message of the answer (owned by the caller), or negative with *err. Thread-safe. */
int grpc_ask(const char *socket, const char *path, long timeout_ms, uint8_t **ret, size_t *ret_size,
	     struct error *err);
