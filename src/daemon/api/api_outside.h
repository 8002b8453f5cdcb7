/* Programs outside carve over HTTP. */
#pragma once

struct call;

/* GET /v1/outside: the policy, and the programs that use a GPU outside of slices. */
void api_get_outside(struct call *call, const char *id);
