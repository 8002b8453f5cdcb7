#include "daemon/api/limits_row.h"

#include "core/quota.h"
#include "daemon/api/view.h"

static const char *unit_text(enum limit_unit unit)
{
	static const char *const texts[] = {[LIMIT_BYTES] = "bytes",
					    [LIMIT_COUNT] = "count",
					    [LIMIT_NS] = "ns",
					    [LIMIT_HOURS] = "gpu_hours",
					    [LIMIT_TEXT] = "text"};

	return texts[unit];
}

static json_t *amount_json(enum limit_unit unit, uint64_t amount)
{
	if (amount == LIMITS_NONE)
		return json_null();
	return unit == LIMIT_HOURS ? json_real((double)amount / 3600000)
				   : json_integer((json_int_t)amount);
}

static json_t *used_json(enum limit_unit unit, uint64_t used)
{
	return unit == LIMIT_HOURS && used != LIMITS_NONE ? json_real(quota_used_hours(used))
							  : amount_json(unit, used);
}

void limits_add(struct limits_view *view, const struct limit_row *row)
{
	json_t *value = row->unit == LIMIT_TEXT ? json_string(row->text)
						: amount_json(row->unit, row->most);

	json_array_append_new(view->rows,
			      json_pack("{s:s, s:s, s:s, s:o, s:o, s:s?, s:s?, s:o}", "limit",
					row->limit, "title", row->title, "unit",
					unit_text(row->unit), "value", value, "used",
					used_json(row->unit, row->used), "from", row->from, "name",
					row->name, "renews", view_time(row->renews)));
}
