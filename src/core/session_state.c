#include "core/session_state.h"

#define IMPOSSIBLE (-1)

static const int next[SESSION_STATES][SESSION_EVENTS] = {
	[SESSION_ACTIVE] =
		{
			[SESSION_EVENT_END] = SESSION_TERMINATING,
			[SESSION_EVENT_DEADLINE] = IMPOSSIBLE,
			[SESSION_EVENT_EMPTY] = SESSION_RECORDING,
		},
	[SESSION_TERMINATING] =
		{
			[SESSION_EVENT_END] = SESSION_TERMINATING,
			[SESSION_EVENT_DEADLINE] = SESSION_KILLING,
			[SESSION_EVENT_EMPTY] = SESSION_RECORDING,
		},
	[SESSION_KILLING] =
		{
			[SESSION_EVENT_END] = SESSION_KILLING,
			[SESSION_EVENT_DEADLINE] = IMPOSSIBLE,
			[SESSION_EVENT_EMPTY] = SESSION_RECORDING,
		},
	[SESSION_RECORDING] =
		{
			[SESSION_EVENT_END] = SESSION_RECORDING,
			[SESSION_EVENT_DEADLINE] = IMPOSSIBLE,
			[SESSION_EVENT_EMPTY] = SESSION_RECORDING,
		},
};

bool session_state_next(enum session_state from, enum session_event event, enum session_state *ret)
{
	if (next[from][event] == IMPOSSIBLE)
		return false;
	*ret = (enum session_state)next[from][event];
	return true;
}
