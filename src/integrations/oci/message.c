#include "integrations/oci/message.h"

#include <stdbool.h>
#include <stdio.h>

#include "base/error.h"

/* C0 and DEL; the second byte of C1 in UTF-8. */
static bool is_control(unsigned char before, unsigned char byte)
{
	return byte < ' ' || byte == 0x7f || (before == 0xc2 && byte >= 0x80 && byte < 0xa0);
}

void oci_error_line(const struct error *err, char buf[static OCI_ERROR_LINE_SIZE])
{
	unsigned char before = 0;

	snprintf(buf, OCI_ERROR_LINE_SIZE, "%s%s%s", err->message, *err->hint ? "; " : "",
		 err->hint);
	for (char *at = buf; *at; at++) {
		unsigned char byte = (unsigned char)*at;

		if (is_control(before, byte)) {
			*at = '?';
			if (byte >= 0x80)
				at[-1] = '?';
		}
		before = byte;
	}
}
