#include "core/process_life.h"

#define IMPOSSIBLE (-1)

static const int next[PROCESS_LIVES][PROCESS_EVENTS] = {
	[PROCESS_LIFE_CONNECTED] =
		{
			[PROCESS_EVENT_CONNECT] = IMPOSSIBLE,
			[PROCESS_EVENT_DISCONNECT] = PROCESS_LIFE_UNCONNECTED,
			[PROCESS_EVENT_END] = PROCESS_LIFE_INHERITED,
		},
	[PROCESS_LIFE_UNCONNECTED] =
		{
			[PROCESS_EVENT_CONNECT] = PROCESS_LIFE_CONNECTED,
			[PROCESS_EVENT_DISCONNECT] = IMPOSSIBLE,
			[PROCESS_EVENT_END] = PROCESS_LIFE_RELEASING,
		},
	[PROCESS_LIFE_INHERITED] =
		{
			[PROCESS_EVENT_CONNECT] = IMPOSSIBLE,
			[PROCESS_EVENT_DISCONNECT] = PROCESS_LIFE_RELEASING,
			[PROCESS_EVENT_END] = IMPOSSIBLE,
		},
	[PROCESS_LIFE_RELEASING] =
		{
			[PROCESS_EVENT_CONNECT] = PROCESS_LIFE_INHERITED,
			[PROCESS_EVENT_DISCONNECT] = IMPOSSIBLE,
			[PROCESS_EVENT_END] = IMPOSSIBLE,
		},
};

bool process_life_next(enum process_life from, enum process_event event, enum process_life *ret)
{
	if (next[from][event] == IMPOSSIBLE)
		return false;
	*ret = (enum process_life)next[from][event];
	return true;
}

bool process_life_is_over(enum process_life life)
{
	return life == PROCESS_LIFE_INHERITED || life == PROCESS_LIFE_RELEASING;
}
