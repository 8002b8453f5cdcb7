#include "daemon/api/api_name.h"

#include <errno.h>
#include <http_parser.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "daemon/api/answer.h"
#include "daemon/api/api.h"
#include "daemon/api/http.h"

static int number_parse(const char *text, uint32_t *ret)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (*text < '0' || *text > '9' || *end || value > UINT32_MAX - 1)
		return -EINVAL;
	*ret = (uint32_t)value;
	return 0;
}

static bool is_called(enum names_kind kind, uint32_t id, const char *name, bool *unknown)
{
	*unknown |= names_asked(kind, id);
	return strcmp(names_of(kind, id), name) == 0;
}

/* Only an administrator may have any name looked for: others know their own, and the machine's. */
static int own_id_of(const struct peer *peer, enum names_kind kind, const char *name, uint32_t *ret)
{
	bool unknown = false, found = false;

	*ret = kind == NAMES_OF_USERS ? peer->uid : peer->gid;
	found = is_called(kind, *ret, name, &unknown);
	for (unsigned i = 0; kind == NAMES_OF_GROUPS && !found && i < peer->groups.count; i++) {
		*ret = peer->groups.gid[i];
		found = is_called(NAMES_OF_GROUPS, *ret, name, &unknown);
	}
	if (found)
		return 0;
	return unknown ? -EINPROGRESS : names_find_here(kind, name, ret);
}

static int id_of(const struct peer *peer, enum names_kind kind, const char *name, uint32_t *ret)
{
	uint32_t number;

	if (number_parse(name, &number) == 0) {
		if (names_find_here(kind, name, ret) < 0)
			*ret = number;
		return 0;
	}
	return peer->admin ? names_find(kind, name, ret) : own_id_of(peer, kind, name, ret);
}

static void on_name(void *call)
{
	api_handle(call);
}

static void on_gone(struct call *call)
{
	names_forget(call);
}

static void name_await(struct call *call)
{
	if (names_await(on_name, call) == 0)
		call_defer(call, on_gone);
	else
		call_reply(call, HTTP_STATUS_INTERNAL_SERVER_ERROR, NULL); /* "out of memory" */
}

bool api_name_find(struct call *call, enum names_kind kind, const char *name, uint32_t *ret)
{
	int rc = id_of(&call->peer, kind, name, ret);

	if (rc == 0)
		return true;
	if (rc == -EINPROGRESS) {
		name_await(call);
		return false;
	}
	answer_failed(call, HTTP_STATUS_NOT_FOUND, EXIT_CODE_USAGE, "there is no %s %.64s",
		      kind == NAMES_OF_USERS ? "user" : "group", name);
	return false;
}
