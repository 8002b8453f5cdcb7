/* A message of the keeper or for it: what passes the check has a name that ends and is harmless,
 * and is one that a side may send. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/keep.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct keep_message message;

	memset(&message, 0xff, sizeof(message));
	memcpy(&message, data, size < sizeof(message) ? size : sizeof(message));
	if (keep_message_check(&message, size) < 0)
		return 0;
	if (size != sizeof(message) || !memchr(message.name, '\0', sizeof(message.name)) ||
	    strpbrk(message.name, "/:\n\x7f ") || message.op < KEEP_PUT ||
	    message.op > KEEP_REFUSED)
		abort();
	struct keep_message again = keep_message_make((enum keep_op)message.op, message.name);
	if (keep_message_check(&again, sizeof(again)) < 0)
		abort();
	return 0;
}
