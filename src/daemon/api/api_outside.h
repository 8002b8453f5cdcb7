/* Programs outside carve over HTTP. */
#pragma once

struct call;
struct limits_view;

/* GET /v1/outside: the policy, and the programs that use a GPU outside of slices. */
void api_get_outside(struct call *call, const char *id);
/* The rows of GET /v1/limits that the policy makes. */
void api_outside_limits(struct limits_view *view);
