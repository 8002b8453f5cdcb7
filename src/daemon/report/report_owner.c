#include "daemon/report/report_owner.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/host/members.h"
#include "daemon/host/owner.h"
#include "daemon/report/report.h"

/* Primary groups of an owner whose month is kept apart; what is beyond counts as of
 * STORE_OTHER_GROUP. */
#define MONTH_GROUPS 16u

static struct report_owner **bucket(const struct report *report, uid_t uid)
{
	return (struct report_owner **)&report->owners[uid % REPORT_BUCKETS];
}

struct report_owner *report_owner_find(const struct report *report, uid_t uid)
{
	struct report_owner *o = *bucket(report, uid);

	while (o && o->uid != uid)
		o = o->next;
	return o;
}

static struct report_owner *owner_get(struct report *report, uid_t uid)
{
	struct report_owner *o = report_owner_find(report, uid), **at = bucket(report, uid);

	if (o || !(o = calloc(1, sizeof(*o))))
		return o;
	o->uid = uid;
	o->next = *at;
	*at = o;
	return o;
}

/* ---- rows -------------------------------------------------------------------------------- */

static bool row_is(const struct store_tally *row, const struct store_tally *key)
{
	return row->day == key->day && row->named == key->named &&
	       (key->named ? !strcmp(row->name, key->name)
			   : row->gid == key->gid && !strcmp(row->gpu, key->gpu));
}

static void row_append(struct report *report, struct report_row *row)
{
	row->next = NULL;
	row->previous = report->last;
	*(report->last ? &report->last->next : &report->first) = row;
	report->last = row;
}

/* The row of a key, made where it is missing. */
static struct report_row *row_get(struct report *report, struct report_owner *owner,
				  const struct store_tally *key)
{
	struct report_row *row = owner->rows;

	while (row && !row_is(&row->stored, key))
		row = row->next_of_owner;
	if (row || !(row = calloc(1, sizeof(*row))))
		return row;
	row->owner = owner;
	row->stored = *key;
	row->stored.uid = owner->uid;
	row->stored.tally = (struct tally){0};
	row->next_of_owner = owner->rows;
	owner->rows = row;
	owner->names += key->named;
	row_append(report, row);
	return row;
}

/* The database has fewer places for an owner's names, on each day. More than these need not be told
 * apart here. */
static void name_bound(const struct report_owner *owner, struct store_tally *key)
{
	for (const struct report_row *row = owner->rows; row; row = row->next_of_owner)
		if (row_is(&row->stored, key))
			return;
	if (owner->names > STORE_TALLY_NAMES)
		snprintf(key->name, sizeof(key->name), "%s", STORE_OTHER_NAME);
}

static void group_bound(const struct report_owner *owner, struct store_tally *key)
{
	gid_t seen[STORE_TALLY_GROUPS];
	unsigned count = 0;

	for (const struct report_row *row = owner->rows; row; row = row->next_of_owner) {
		unsigned i = 0;

		if (row->stored.named || row->stored.gid == STORE_OTHER_GROUP)
			continue;
		if (row->stored.gid == key->gid)
			return;
		while (i < count && seen[i] != row->stored.gid)
			i++;
		if (i < count)
			continue;
		if (count == STORE_TALLY_GROUPS) {
			key->gid = STORE_OTHER_GROUP;
			return;
		}
		seen[count++] = row->stored.gid;
	}
	if (count == STORE_TALLY_GROUPS)
		key->gid = STORE_OTHER_GROUP;
}

/* ---- months ------------------------------------------------------------------------------ */

static void month_add(struct report_owner *owner, gid_t gid, uint64_t gpu_ns)
{
	struct report_month *m = owner->months;

	if (owner->groups >= MONTH_GROUPS)
		for (m = owner->months; m && m->gid != gid; m = m->next)
			;
	if (owner->groups >= MONTH_GROUPS && !m)
		gid = STORE_OTHER_GROUP;
	for (m = owner->months; m && m->gid != gid; m = m->next)
		;
	if (!m) {
		m = calloc(1, sizeof(*m));
		if (!m)
			return;
		m->gid = gid;
		m->next = owner->months;
		owner->months = m;
		owner->groups++;
	}
	m->gpu_ns += gpu_ns;
}

static void months_free(struct report_owner *owner)
{
	while (owner->months) {
		struct report_month *m = owner->months;

		owner->months = m->next;
		free(m);
	}
	owner->groups = 0;
}

static int sum_take(void *arg, const struct store_tally *sum)
{
	struct report *report = arg;
	struct report_owner *owner = owner_get(report, owner_of(sum->uid));

	if (owner)
		month_add(owner, sum->gid, sum->tally.gpu_ns);
	return owner ? 0 : -ENOMEM;
}

int report_month_load(struct report *report, int64_t day)
{
	report->month = tally_month(day);
	for (unsigned i = 0; i < REPORT_BUCKETS; i++)
		for (struct report_owner *o = report->owners[i]; o; o = o->next)
			months_free(o);
	for (const struct report_row *row = report->first; row; row = row->next)
		if (!row->stored.named && row->stored.day >= report->month)
			month_add(row->owner, row->stored.gid, row->stored.tally.gpu_ns);
	return store_tally_sums(report->store, report->month, sum_take, report);
}

uint64_t report_month_held(const struct report *report, uid_t uid)
{
	const struct report_owner *owner = report_owner_find(report, owner_of(uid));
	uint64_t sum = 0;

	for (const struct report_month *m = owner ? owner->months : NULL; m; m = m->next)
		sum += m->gpu_ns;
	return sum;
}

uint64_t report_month_held_by_group(const struct report *report, gid_t gid,
				    const struct members *members, const struct members *others)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < REPORT_BUCKETS; i++)
		for (const struct report_owner *o = report->owners[i]; o; o = o->next) {
			bool member = (members && members_have(members, o->uid)) ||
				      (others && members_have(others, o->uid));

			for (const struct report_month *m = o->months; m; m = m->next)
				if (member || m->gid == gid)
					sum += m->gpu_ns;
		}
	return sum;
}

/* ---- adding and writing ------------------------------------------------------------------ */

static void row_add(struct report *report, struct report_owner *owner,
		    const struct store_tally *key)
{
	struct report_row *row = row_get(report, owner, key);

	if (row)
		tally_add(&row->stored.tally, &key->tally);
}

void report_add(struct report *report, const struct store_tally *key)
{
	struct report_owner *owner = owner_get(report, owner_of(key->uid));
	struct store_tally of_group = *key, of_name = *key;

	if (!owner || tally_is_empty(&key->tally))
		return;
	of_group.named = false;
	of_group.name[0] = '\0';
	group_bound(owner, &of_group);
	row_add(report, owner, &of_group);
	of_name.named = true;
	of_name.gid = 0;
	of_name.gpu[0] = '\0';
	name_bound(owner, &of_name);
	row_add(report, owner, &of_name);
	if (key->day >= report->month)
		month_add(owner, key->gid, key->tally.gpu_ns);
}

static void row_take(struct report *report, struct report_row *row)
{
	struct report_row **at = &row->owner->rows;

	while (*at != row)
		at = &(*at)->next_of_owner;
	*at = row->next_of_owner;
	row->owner->names -= row->stored.named;
	*(row->previous ? &row->previous->next : &report->first) = row->next;
	*(row->next ? &row->next->previous : &report->last) = row->previous;
}

uint32_t report_rows_take(struct report *report, struct report_row **ret, uint32_t most)
{
	uint32_t count = 0;

	while (count < most && report->first) {
		ret[count] = report->first;
		row_take(report, ret[count++]);
	}
	return count;
}

void report_rows_return(struct report *report, struct report_row **rows, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		row_add(report, rows[i]->owner, &rows[i]->stored);
		free(rows[i]);
	}
}

void report_owners_free(struct report *report)
{
	for (struct report_row *row = report->first, *next; row; row = next) {
		next = row->next;
		free(row);
	}
	report->first = report->last = NULL;
	for (unsigned i = 0; i < REPORT_BUCKETS; i++)
		while (report->owners[i]) {
			struct report_owner *owner = report->owners[i];

			report->owners[i] = owner->next;
			months_free(owner);
			free(owner);
		}
}
