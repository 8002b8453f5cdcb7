#include "daemon/slicing/slicing.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/macros.h"
#include "base/units.h"
#include "core/compute.h"
#include "daemon/events/events.h"
#include "daemon/gpu/pool.h"
#include "daemon/host/log.h"
#include "daemon/host/unrecorded.h"
#include "daemon/lease/leases.h"
#include "daemon/session/process.h"
#include "daemon/session/session.h"
#include "daemon/session/session_hooks.h"
#include "daemon/session/sessions.h"
#include "daemon/slicing/compute.h"
#include "daemon/store/store.h"
#include "proto/gate.h"

/* ---- reading ----------------------------------------------------------------------------- */

static const char *text_read(const json_t *value, const char *field, const char *example,
			     struct error *err)
{
	if (json_is_string(value))
		return json_string_value(value);
	error_set(err, EXIT_CODE_USAGE, "%s takes a string such as \"%s\"", field, example);
	return NULL;
}

static int mode_read(const json_t *value, struct slicing_change *to, struct error *err)
{
	const char *text = text_read(value, "mode", "fair", err);

	to->mode = true;
	if (!text)
		return -1;
	if (compute_mode_parse(text, &to->to.mode))
		return 0;
	error_set(err, EXIT_CODE_USAGE, "mode: '%.32s' is none of off, fair, strict", text);
	return -1;
}

static int lease_read(const json_t *value, struct slicing_change *to, struct error *err)
{
	const char *text = text_read(value, "lease", "250ms", err);

	to->lease = true;
	if (!text)
		return -1;
	return units_parse_duration(text, "lease", LEASE_NS_MIN, LEASE_NS_MAX, &to->to.lease_ns,
				    err);
}

static const struct units_part lease_granularity = {LEASE_GRANULARITY_MIN, LEASE_GRANULARITY_MAX,
						    LEASE_GRANULARITY_RIGHT};

static int granularity_read(const json_t *value, struct slicing_change *to, struct error *err)
{
	char number[32];
	const char *text = json_is_string(value) ? json_string_value(value) : "";

	if (json_is_number(value)) {
		double part = json_number_value(value);

		snprintf(number, sizeof(number), part < 0.001 ? "%.6f" : "%.10g", part);
		text = number;
	}
	to->granularity = true;
	return units_parse_part(text, "granularity", &lease_granularity, &to->to.granularity_ppm,
				err);
}

static const struct {
	const char *name;
	int (*read)(const json_t *value, struct slicing_change *to, struct error *err);
} fields[] = {
	{"mode", mode_read},
	{"lease", lease_read},
	{"granularity", granularity_read},
};

static int field_read(const char *key, const json_t *value, const char *other,
		      struct slicing_change *to, struct error *err)
{
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
		if (!strcmp(fields[i].name, key))
			return fields[i].read(value, to, err);
	error_set(err, EXIT_CODE_USAGE, "unknown field '%.64s'", key);
	error_hint(err, "time-slicing takes mode, lease, granularity%s%s", other ? ", " : "",
		   other ? other : "");
	return -1;
}

int slicing_change_read(const json_t *object, const char *ignored, struct slicing_change *ret,
			struct error *err)
{
	struct slicing_change change = {0};
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)object, key, value)
	{
		if ((ignored && !strcmp(key, ignored)) || json_is_null(value))
			continue;
		if (field_read(key, value, ignored, &change, err) < 0)
			return -1;
	}
	*ret = change;
	return 0;
}

void slicing_change_apply(const struct slicing_change *change, struct lease_setting *to)
{
	if (change->mode)
		to->mode = change->to.mode;
	if (change->lease)
		to->lease_ns = change->to.lease_ns;
	if (change->granularity)
		to->granularity_ppm = change->to.granularity_ppm;
}

/* ---- GPUs -------------------------------------------------------------------------------- */

static struct lease_setting setting_of(const struct pool_gpu *gpu)
{
	return (struct lease_setting){.mode = gpu->mode,
				      .lease_ns = gpu->lease_ns,
				      .granularity_ppm = gpu->granularity_ppm};
}

void slicing_tell(struct session *s)
{
	const struct pool *pool = s->sessions->pool;
	uint64_t unsliced = 0;

	if (!s->lease)
		return;
	for (uint32_t i = 0; i < s->record.gpu_count; i++)
		if (s->pool_gpu[i] >= 0 && pool->gpu[s->pool_gpu[i]].mode == COMPUTE_OFF)
			unsliced |= 1ull << i;
	leases_unsliced(s->sessions->leases, s->lease, unsliced);
}

void slicing_say(struct slicing *slicing)
{
	for (struct session *s = slicing->sessions->attached; s; s = s->next_attached)
		slicing_tell(s);
}

static void gpu_apply(struct slicing *slicing, uint32_t position,
		      const struct lease_setting *setting)
{
	struct pool_gpu *gpu = &slicing->pool->gpu[position];

	if (gpu->mode != setting->mode || gpu->lease_ns != setting->lease_ns ||
	    gpu->granularity_ppm != setting->granularity_ppm)
		log_event(LOG_INFO,
			  "gpu.timeslicing index=%u mode=%s lease_us=%" PRIu64 " granularity=%g",
			  gpu->info.index, compute_mode_text(setting->mode),
			  setting->lease_ns / 1000, setting->granularity_ppm / (double)SHARE_ONE);
	gpu->mode = setting->mode;
	gpu->lease_ns = setting->lease_ns;
	gpu->granularity_ppm = setting->granularity_ppm;
	slicing_say(slicing);
	leases_set(slicing->leases, position, setting);
}

/* The configuration's, where nobody set it. Sessions from before may ask for more time than there
 * is: then the mode stays off until they end (slicing_retry()). */
static void gpu_configure(struct slicing *slicing, uint32_t position)
{
	struct pool_gpu *gpu = &slicing->pool->gpu[position];
	struct lease_setting setting = slicing->wanted;
	struct error err = {0};

	gpu->slicing_refused = false;
	if (gpu->slicing_set)
		return;
	if (gpu->info.mig)
		setting.mode = COMPUTE_OFF;
	if (setting.mode != COMPUTE_OFF &&
	    compute_switch_check(slicing->pool, slicing->sessions->first, 1ull << position, &err) <
		    0) {
		log_event(LOG_WARNING, "gpu.timeslicing_refused index=%u error=\"%s\"",
			  gpu->info.index, err.message);
		setting.mode = COMPUTE_OFF;
		gpu->slicing_refused = true;
	}
	gpu_apply(slicing, position, &setting);
}

void slicing_retry(struct slicing *slicing)
{
	for (uint32_t i = 0; i < slicing->pool->count; i++)
		if (slicing->pool->gpu[i].slicing_refused &&
		    slicing->pool->gpu[i].share <= SHARE_ONE)
			gpu_configure(slicing, i);
}

static int take_stored(void *arg, const struct store_slicing *stored)
{
	struct slicing *slicing = arg;
	int position = pool_find(slicing->pool, stored->uuid_text);
	const struct lease_setting *s = &stored->setting;

	if (position < 0 || slicing->pool->gpu[position].info.mig)
		return 0;
	if ((unsigned)s->mode > COMPUTE_STRICT || s->lease_ns < LEASE_NS_MIN ||
	    s->lease_ns > LEASE_NS_MAX || s->granularity_ppm < LEASE_GRANULARITY_MIN ||
	    s->granularity_ppm > LEASE_GRANULARITY_MAX) {
		log_event(LOG_ERROR, "gpu.timeslicing_ignored uuid=%s", stored->uuid_text);
		return 0;
	}
	slicing->pool->gpu[position].slicing_set = true;
	gpu_apply(slicing, (uint32_t)position, s);
	return 0;
}

int slicing_load(struct slicing *slicing)
{
	int rc = store_slicing_each(slicing->sessions->store, take_stored, slicing);

	slicing_reload(slicing);
	return rc;
}

void slicing_reload(struct slicing *slicing)
{
	for (uint32_t i = 0; i < slicing->pool->count; i++)
		gpu_configure(slicing, i);
}

void slicing_mig_changed(struct slicing *slicing)
{
	for (uint32_t i = 0; i < slicing->pool->count; i++)
		if (slicing->pool->gpu[i].info.mig)
			slicing->pool->gpu[i].slicing_set = false;
	int rc = slicing_load(slicing);
	if (rc < 0)
		log_event(LOG_ERROR, "gpu.timeslicing_unread error=\"%s\"", strerrordesc_np(-rc));
}

static int mask_check(const struct slicing *slicing, uint64_t mask,
		      const struct slicing_change *change, struct error *err)
{
	uint64_t starting = 0;

	for (uint32_t i = 0; i < slicing->pool->count; i++) {
		const struct pool_gpu *gpu = &slicing->pool->gpu[i];

		if (!(mask >> i & 1))
			continue;
		if (gpu->info.mig) {
			error_set(err, EXIT_CODE_USAGE,
				  "GPU %u is in MIG mode: its instances are not time-sliced",
				  gpu->info.index);
			return -1;
		}
		if (change->mode && change->to.mode != COMPUTE_OFF && gpu->mode == COMPUTE_OFF)
			starting |= 1ull << i;
	}
	return compute_switch_check(slicing->pool, slicing->sessions->first, starting, err);
}

#define SETTING_TEXT_SIZE 128

static const char *setting_text(const struct lease_setting *setting,
				char buf[static SETTING_TEXT_SIZE])
{
	char lease[UNITS_TEXT_SIZE];

	if (setting->mode == COMPUTE_OFF)
		return "off";
	snprintf(buf, SETTING_TEXT_SIZE, "%s, lease %s, granularity %g%%",
		 compute_mode_text(setting->mode), units_format_duration(setting->lease_ns, lease),
		 setting->granularity_ppm * 100.0 / SHARE_ONE);
	return buf;
}

static bool is_same(const struct lease_setting *a, const struct lease_setting *b)
{
	return a->mode == b->mode && a->lease_ns == b->lease_ns &&
	       a->granularity_ppm == b->granularity_ppm;
}

/* One event for all GPUs that had one setting. All have one setting now, but for what the change
 * does not name. */
static void change_record(const struct slicing *slicing, uint64_t mask,
			  const struct lease_setting *before, const struct peer *actor)
{
	while (mask) {
		uint32_t first = (uint32_t)__builtin_ctzll(mask);
		struct lease_setting after = setting_of(&slicing->pool->gpu[first]);
		char subject[POOL_GPUS_TEXT_SIZE], old[SETTING_TEXT_SIZE], new[SETTING_TEXT_SIZE];
		uint64_t alike = 0;

		for (uint32_t i = first; i < slicing->pool->count; i++) {
			struct lease_setting now = setting_of(&slicing->pool->gpu[i]);

			if (mask >> i & 1 && is_same(&before[i], &before[first]) &&
			    is_same(&now, &after))
				alike |= 1ull << i;
		}
		mask &= ~alike;
		if (!is_same(&before[first], &after))
			events_add(slicing->sessions->events,
				   &(struct event){
					   .kind = EVENT_TIMESLICING_SET,
					   .actor = actor,
					   .subject = pool_gpus_text(slicing->pool, alike, subject),
					   .before = setting_text(&before[first], old),
					   .after = setting_text(&after, new),
				   });
	}
}

int slicing_set(struct slicing *slicing, uint64_t mask, const struct slicing_change *change,
		const struct peer *actor, struct error *err)
{
	struct store_slicing stored[GPUS_MAX];
	struct lease_setting before[GPUS_MAX];
	uint32_t count = 0;

	if (mask_check(slicing, mask, change, err) < 0)
		return -1;
	for (uint32_t i = 0; i < slicing->pool->count; i++) {
		if (!(mask >> i & 1))
			continue;
		struct store_slicing *to = &stored[count++];

		before[i] = setting_of(&slicing->pool->gpu[i]);
		snprintf(to->uuid_text, sizeof(to->uuid_text), "%s",
			 slicing->pool->gpu[i].info.uuid_text);
		to->setting = setting_of(&slicing->pool->gpu[i]);
		slicing_change_apply(change, &to->setting);
	}
	int rc = store_slicing_put(slicing->sessions->store, stored, count);
	if (rc < 0)
		return unrecorded_set(err, "the mode cannot be recorded", rc);
	for (uint32_t i = 0, at = 0; i < slicing->pool->count; i++)
		if (mask >> i & 1) {
			slicing->pool->gpu[i].slicing_set = true;
			slicing->pool->gpu[i].slicing_refused = false;
			gpu_apply(slicing, i, &stored[at++].setting);
		}
	change_record(slicing, mask, before, actor);
	sessions_room_made(slicing->sessions);
	return 0;
}

/* ---- sessions ---------------------------------------------------------------------------- */

void slicing_join(struct session *s)
{
	struct lease_joining joining = {
		.id = s->record.id,
		.uid = s->record.uid,
		.owner = slicing_owner(s->record.uid),
		.ledger = &s->books.ledger,
		.limits = s->books.limits,
		.gpus = session_gpu_mask(s),
		.fraction = s->record.compute,
		.wake_fd = s->wake_fd,
		.counted_from = s->counted_from,
	};

	/* A ledger of before there was time-slicing has no gate. */
	if (s->lease || !joining.gpus || !gate_process(&s->books.ledger, 0))
		return;
	s->wake_fd = -1;
	int rc = leases_join(s->sessions->leases, &joining, &s->lease);
	if (rc < 0)
		log_event(LOG_ERROR, "session.not_sliced id=%s error=\"%s\"", s->record.id,
			  strerrordesc_np(-rc));
	slicing_tell(s);
}

void slicing_leave(struct session *s)
{
	leases_leave(s->sessions->leases, s->lease);
	s->lease = NULL;
}

void slicing_shares(const struct session *s, uint32_t *ret_request, uint32_t *ret_limit)
{
	*ret_request = s->record.compute;
	*ret_limit = SHARE_ONE;
	for (uint32_t i = 0; i < s->record.gpu_count && s->record.compute; i++)
		if (s->pool_gpu[i] >= 0 &&
		    s->sessions->pool->gpu[s->pool_gpu[i]].mode == COMPUTE_STRICT)
			*ret_limit = s->record.compute;
}

int64_t slicing_received(const struct session *s)
{
	struct lease_standing standing;

	if (!s->lease)
		return -1;
	leases_standing(s->sessions->leases, s->lease, &standing);
	int64_t life = now_realtime_ns() - standing.counted_from;
	if (life <= 0 || !standing.stat.leases || (!s->record.compute && !standing.stat.held_ns))
		return -1;
	return (int64_t)((double)standing.stat.held_ns * SHARE_ONE / (double)life);
}
