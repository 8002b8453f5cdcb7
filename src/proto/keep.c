#include "proto/keep.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

struct keep_message keep_message_make(enum keep_op op, const char *name)
{
	struct keep_message message = {
		.magic = KEEP_MAGIC, .version = KEEP_VERSION, .op = (uint16_t)op};
	size_t length = strnlen(name, sizeof(message.name) - 1);

	memcpy(message.name, name, length);
	return message;
}

static bool name_is_right(const char name[static KEEP_NAME_SIZE], bool wanted)
{
	size_t length = strnlen(name, KEEP_NAME_SIZE);

	if (length == KEEP_NAME_SIZE || (length > 0) != wanted)
		return false;
	for (size_t i = 0; i < length; i++) {
		char c = name[i];

		if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '-' && c != '.')
			return false;
	}
	return true;
}

int keep_message_check(const struct keep_message *message, size_t size)
{
	if (size != sizeof(*message) || message->magic != KEEP_MAGIC ||
	    message->version != KEEP_VERSION)
		return -EPROTO;
	switch ((enum keep_op)message->op) {
	case KEEP_PUT:
	case KEEP_DROP:
	case KEEP_HELD:
	case KEEP_REFUSED:
		return name_is_right(message->name, true) ? 0 : -EPROTO;
	case KEEP_LIST:
	case KEEP_END:
		return name_is_right(message->name, false) ? 0 : -EPROTO;
	}
	return -EPROTO;
}
