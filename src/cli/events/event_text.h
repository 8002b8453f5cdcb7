/* An event of the daemon's log, as a line for people. Pure. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#define EVENT_LINE_SIZE 1400

/* "quota.set user alice: vram 4 GiB -> vram 8 GiB; by root (carve, PID 4711)". The client has
 * cleaned the texts. Returns buf. */
const char *event_line(const json_t *event, char buf[static EVENT_LINE_SIZE]);
