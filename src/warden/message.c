#include "warden/message.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/socket.h"

_Static_assert(WARDEN_DESCRIPTORS_MAX <= DESCRIPTORS_MAX, "room for what goes along");

static void descriptors_close(struct warden_message *message)
{
	for (unsigned i = 0; i < WARDEN_DESCRIPTORS_MAX; i++)
		close_fd(&message->fd[i]);
}

struct warden_message *warden_message_new(void)
{
	struct warden_message *message = calloc(1, sizeof(*message));

	for (unsigned i = 0; message && i < WARDEN_DESCRIPTORS_MAX; i++)
		message->fd[i] = -1;
	return message;
}

void warden_message_free(struct warden_message *message)
{
	if (message)
		descriptors_close(message);
	free(message);
}

int warden_message_receive(int fd, struct warden_message *ret)
{
	ssize_t n = descriptors_receive(fd, &ret->head, sizeof(ret->head) + sizeof(ret->data),
					ret->fd, WARDEN_DESCRIPTORS_MAX);

	if (n == -EINTR)
		return -EAGAIN;
	if (n == 0 || n == -ECONNRESET)
		return -EPIPE;
	if (n < 0)
		return (int)n;
	return warden_head_fits(&ret->head, (size_t)n) ? 0 : -EPROTO;
}

int warden_message_send(int fd, const struct warden_message *message)
{
	unsigned count = 0;

	while (count < WARDEN_DESCRIPTORS_MAX && message->fd[count] >= 0)
		count++;
	return descriptors_send(fd, &message->head, sizeof(message->head) + message->head.size,
				message->fd, count);
}

void warden_message_answer(struct warden_message *message, int rc, const void *data, size_t size,
			   int fd)
{
	descriptors_close(message);
	message->head.error = rc < 0 ? -rc : 0;
	message->head.size = rc < 0 ? 0 : (uint32_t)size;
	if (rc < 0)
		close_fd(&fd);
	else if (size)
		memcpy(message->data, data, size);
	message->fd[0] = fd;
}
