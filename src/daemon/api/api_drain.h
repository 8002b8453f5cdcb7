/* Draining GPUs over HTTP. */
#pragma once

struct call;

void api_get_drains(struct call *call, const char *id);
void api_put_drains(struct call *call, const char *id);
