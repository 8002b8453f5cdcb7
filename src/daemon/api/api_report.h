/* GET /v1/report. */
#pragma once

struct call;

void api_get_report(struct call *call, const char *id);
