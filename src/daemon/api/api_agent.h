/* The API's agents and queues. */
#pragma once

struct call;

void api_get_agents(struct call *call, const char *id);
void api_post_agent(struct call *call, const char *id);
void api_patch_agent(struct call *call, const char *id);
void api_delete_agent(struct call *call, const char *id);
void api_get_queues(struct call *call, const char *id);
