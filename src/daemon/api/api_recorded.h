/* Commands that their users have recorded: POST /v1/commands/recorded as one begins, and PATCH
 * /v1/commands/recorded/N when it has ended. */
#pragma once

struct call;

void api_post_recorded(struct call *call, const char *id);
void api_patch_recorded(struct call *call, const char *number);
