/* How gRPC frames messages and words errors. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "integrations/kubernetes/grpc/grpc_private.h"

int grpc_buffer_add(struct grpc_buffer *buffer, const void *data, size_t size)
{
	if (size > buffer->room - buffer->size) {
		size_t room = MAX(buffer->room * 2, buffer->size + size);
		uint8_t *grown = realloc(buffer->data, room);

		if (!grown)
			return -ENOMEM;
		buffer->data = grown;
		buffer->room = room;
	}
	if (size)
		memcpy(buffer->data + buffer->size, data, size);
	buffer->size += size;
	return 0;
}

void grpc_buffer_free(struct grpc_buffer *buffer)
{
	free(buffer->data);
	*buffer = (struct grpc_buffer){0};
}

int grpc_message_find(const uint8_t *body, size_t size, const uint8_t **ret_message,
		      size_t *ret_size)
{
	if (size < GRPC_PREFIX)
		return -EAGAIN;
	size_t length = (size_t)body[1] << 24 | (size_t)body[2] << 16 | (size_t)body[3] << 8 |
			(size_t)body[4];
	if (body[0] != 0)
		return -ENOTSUP;
	if (length > size - GRPC_PREFIX)
		return -EAGAIN;
	if (length < size - GRPC_PREFIX)
		return -EBADMSG;
	*ret_message = body + GRPC_PREFIX;
	*ret_size = length;
	return 0;
}

const char *grpc_message_encode(const char *text, char *buf, size_t size)
{
	size_t used = 0;

	for (; *text && used + 4 <= size; text++) {
		unsigned char c = (unsigned char)*text;

		if (c >= 0x20 && c <= 0x7e && c != '%')
			buf[used++] = (char)c;
		else
			used += (size_t)snprintf(buf + used, size - used, "%%%02X", c);
	}
	buf[used] = '\0';
	return buf;
}
