/* The words of the hook, as a terminal, a log and a runtime's own messages can show them. */
#pragma once

struct error;

/* Room for a message, a hint and what stands between them. */
#define OCI_ERROR_LINE_SIZE 800

/* "MESSAGE; HINT" on one line: paths and names in it may hold control characters, which become
 * '?'. */
void oci_error_line(const struct error *err, char buf[static OCI_ERROR_LINE_SIZE]);
