#include "daemon/api/view_recorded.h"

#include "base/units.h"
#include "daemon/node.h"

static json_t *moment(int64_t ns)
{
	char text[UNITS_TEXT_SIZE];

	return ns ? json_string(units_format_time(ns, UNITS_MILLISECONDS, text)) : json_null();
}

static int recorded_add(void *arg, const struct store_recorded *r)
{
	json_array_append_new(arg,
			      json_pack("{s:s, s:o, s:o, s:o}", "command", r->text, "began",
					moment(r->began), "ended", moment(r->ended), "exit_code",
					r->ended ? json_integer(r->exit_code) : json_null()));
	return 0;
}

json_t *view_recorded(struct store *store, const char *session)
{
	json_t *list = json_array();

	(void)store_recorded_each(store, session, recorded_add, list);
	return list;
}
