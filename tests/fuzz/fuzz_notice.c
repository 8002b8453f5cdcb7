/* A worker's notice for its supervisor: whatever it is, a name that is taken is a plain one, and
 * what is for people is printable. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/supervisor/notice.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789-.";
	struct notice notice;
	char *text = malloc(size ? size : 1); /* without a NUL behind it */

	if (!text)
		return 0;
	if (size)
		memcpy(text, data, size);
	bool taken = notice_read(text, size, &notice);
	free(text);
	if (!taken)
		return 0;
	if (!memchr(notice.name, '\0', sizeof(notice.name)) ||
	    strspn(notice.name, letters) != strlen(notice.name) ||
	    ((notice.stores || notice.removes) && !strchr(notice.name, '.')))
		abort();
	if (!memchr(notice.status, '\0', sizeof(notice.status)))
		abort();
	for (const char *c = notice.status; *c; c++)
		if ((unsigned char)*c < ' ' || *c == '\x7f')
			abort();
	return 0;
}
