/* Handlers that tell what would become of a request, or why one waits. */
#pragma once

struct call;

/* POST /v1/explain: of the request in the body. */
void api_post_explain(struct call *call, const char *id);
/* GET /v1/explain/ID: of a request that waits. */
void api_get_explain(struct call *call, const char *id);
