#include "daemon/settle/settle.h"

#include "base/clock.h"
#include "base/macros.h"
#include "core/settle.h"
#include "daemon/gpu/pool.h"
#include "daemon/session/session.h"
#include "daemon/settle/descriptors.h"
#include "daemon/settle/settling.h"

/* A session that is made quiescent (core/settle.h) is looked at again this often. */
#define HURRY_EVERY_MS 1
/* Meanwhile a fifth of the time goes on that, where the driver takes long, but there is another
 * look within what is waited for. */
#define HURRY_PARTS 5
#define HURRY_MOST_NS 60000000ull
/* A process that closed a descriptor has what it kept after this long, or after this many times as
 * long as it takes to find those that are open. */
#define DESCRIBED_EVERY_MS 100
#define DESCRIBED_EVERY_READINGS 20
/* More than any GPU has. */
#define MAYBE_FREED_MOST (1ull << 60)
/* Memory that is leaving is waited for this long, before the daemon keeps it. */
#define LEAVING_NS 300000000ull

static void managed_unlisted_set(struct ledger_limits *limits, uint64_t gpus)
{
	atomic_store(&limits->managed_unlisted_gpus, gpus);
	atomic_store(&limits->managed_unlisted_generation, atomic_load(&limits->generation));
}

void settle_tell(struct session *s)
{
	uint64_t gpus = 0;

	for (uint32_t i = 0; i < s->record.gpu_count; i++)
		if (s->pool_gpu[i] >= 0 &&
		    s->sessions->pool->gpu[s->pool_gpu[i]].managed == MANAGED_APART)
			gpus |= 1ull << i;
	managed_unlisted_set(s->books.limits, gpus);
}

void settle_say(struct settling *settling)
{
	for (struct session *s = settling->sessions->attached; s; s = s->next_attached)
		settle_tell(s);
}

/* The next sample over which all are quiescent shows who has it, if anybody. */
static void keep(struct session *s, uint32_t position, uint64_t bytes)
{
	const struct ledger *l = &s->books.ledger;

	ledger_keep(l, position, ledger_kept(l, position) + bytes);
	s->kept_sample = pool_refresh(s->sessions->pool, session_gpu_mask(s));
}

void settle_keep(const struct process *p, bool compared)
{
	struct session *s = p->session;

	if (compared && s->quiescent && !descriptors_of(p))
		return;
	for (uint32_t i = 0; i < s->record.gpu_count; i++)
		if (ledger_slot(&s->books.ledger, p->slot)->exported)
			keep(s, i, ledger_slot_bytes(&s->books.ledger, p->slot, i));
}

/* The memory that it has charged and need not hold, by its own word. */
static uint64_t maybe_freed_of(const struct ledger_slot *slot)
{
	return MIN(slot->maybe_freed, MAYBE_FREED_MOST);
}

/* All that it has charged it held when it last looked, and it has just looked. */
static bool is_certain(const struct ledger_slot *slot)
{
	return !slot->maybe_freed && !(slot->not_revalidated && slot->growing);
}

/* GPUs of which a session that processes are in has several instances, or sessions share one. */
static void parts_want(struct settling *settling)
{
	struct pool *pool = settling->pool;

	for (uint32_t i = 0; i < pool->count; i++)
		pool->gpu[i].parts_wanted = pool->gpu[i].shared_count;
	for (const struct session *s = settling->sessions->attached; s; s = s->next_attached)
		for (uint32_t i = 0; s->processes && i < s->record.gpu_count; i++)
			if (s->pool_gpu[i] >= 0 && session_is_one_of_several(s, i))
				pool->gpu[s->pool_gpu[i]].parts_wanted = true;
}

void processes_sampling(struct settling *settling)
{
	parts_want(settling);
	for (struct session *s = settling->sessions->attached; s; s = s->next_attached)
		for (struct process *p = s->processes; p; p = p->next) {
			struct ledger_slot *slot = ledger_slot(&s->books.ledger, p->slot);

			p->sampled = true;
			p->seen_done = slot->calls_done;
			p->seen_begun = slot->calls_begun;
			p->seen_release_pending = slot->release_pending;
			p->seen_local_release_seq = slot->local_release_seq;
			p->seen_maybe_freed = maybe_freed_of(slot);
			p->seen_managed = slot->managed;
			p->seen_certain = is_certain(slot);
			for (uint32_t i = 0; i < s->record.gpu_count; i++) {
				p->gpu[i].seen_used = ledger_used(&s->books.ledger, p->slot, i);
				p->gpu[i].seen_managed_unlisted = process_managed_unlisted(p, i);
			}
		}
}

/* Its question is about the newest sample. */
static bool asks(const struct process *p)
{
	return p->ask_sample && p->ask_sample <= p->session->sessions->pool->done;
}

/* The memory that it has charged and gave back. */
static int64_t leaving(const struct process *p, uint32_t position)
{
	return asks(p) && p->ask_position == position ? (int64_t)p->ask_release_pending : 0;
}

static bool was_quiescent(struct process *p)
{
	const struct session *s = p->session;
	struct ledger_slot *slot = ledger_slot(&s->books.ledger, p->slot);
	struct settle_calls calls = {
		.sampled = p->sampled,
		.asks = asks(p),
		.seen_begun = p->seen_begun,
		.begun = slot->calls_begun,
		.seen_done = p->seen_done,
		.seen_release_pending = p->seen_release_pending,
		.release_pending = slot->release_pending,
	};

	if (!settle_is_quiescent(&calls))
		return false;
	for (uint32_t i = 0; i < s->record.gpu_count; i++)
		if (ledger_used(&s->books.ledger, p->slot, i) != p->gpu[i].seen_used)
			return false;
	return true;
}

/* Another slot of the same process: a second copy of the front. */
static bool is_twin(const struct process *p, const struct process *q)
{
	return q != p && !process_is_dead(q) && q->id.pid == p->id.pid;
}

/* The charges of those that are to be in the driver's figure. */
static int64_t used_by_twins(const struct process *p, uint32_t position)
{
	int64_t sum = 0;

	for (const struct process *q = p->session->processes; q; q = q->next)
		if (is_twin(p, q))
			sum += ledger_used(&p->session->books.ledger, q->slot, position) -
			       leaving(q, position) - process_managed_unlisted(q, position);
	return sum;
}

static bool is_first_twin(const struct process *p)
{
	return process_first_twin(p) == p;
}

static bool has_twin(const struct process *p)
{
	for (const struct process *q = p->session->processes; q; q = q->next)
		if (is_twin(p, q))
			return true;
	return false;
}

/* Where the driver's figure is less, nobody can tell which of two slots has less. And calls that
 * wait for the daemon may have reserved memory that they do not hold yet. */
static int64_t maybe_freed(const struct process *p)
{
	const struct ledger_slot *slot = ledger_slot(&p->session->books.ledger, p->slot);
	uint64_t bytes = MIN(p->seen_maybe_freed, maybe_freed_of(slot));
	bool waits = asks(p) || p->seen_release_pending || p->seen_begun != p->seen_done;

	/* Most have none: the others of the session are gone through for the rest alone. */
	return !bytes || waits || process_has_managed(p) || has_twin(p) ? 0 : (int64_t)bytes;
}

/* The driver's figures are a GPU's: where the session has several instances of it, those of each
 * have to be asked for. */
static bool has_figures(const struct session *s, uint32_t position)
{
	const struct gpu_sample *sample = &s->sessions->pool->gpu[s->pool_gpu[position]].sample;

	return !sample->error && (sample->parts_known || !session_is_one_of_several(s, position));
}

/* The newest sample's figure of it on one GPU of its session. */
static struct settle_reading reading_of(const struct process *p, uint32_t position)
{
	const struct session *s = p->session;

	return (struct settle_reading){
		.failed = !has_figures(s, position),
		.figure = process_figure_at(p, position),
		.used = p->gpu[position].seen_used,
		.managed_unlisted = p->gpu[position].seen_managed_unlisted,
		.release_pending = leaving(p, position),
		.twins = used_by_twins(p, position),
		.maybe_freed = maybe_freed(p),
		.context = (int64_t)s->books.limits->gpu[position].context_bytes,
		.posted = ledger_settled(&s->books.ledger, p->slot, position),
		.floor = p->gpu[position].floor,
		.asks = asks(p),
		.asks_exact = p->ask_why == SETTLE_EXACT,
		.managed = process_has_managed(p),
	};
}

/* The amount to be posted (settle_aim()). False: it cannot be told. */
static bool settled_aim(struct process *p, uint32_t position, int64_t *ret)
{
	struct settle_reading reading = reading_of(p, position);

	return settle_aim(&reading, ret, &p->gpu[position].floor);
}

static bool is_sampled(const struct session *s, uint32_t position)
{
	return s->pool_gpu[position] >= 0 && s->sessions->pool->mask >> s->pool_gpu[position] & 1 &&
	       has_figures(s, position);
}

/* The least that it held beyond its charges, while `gpu`'s sample was taken. */
static int64_t beyond(const struct process *p, uint32_t i, int64_t used_before,
		      int64_t managed_unlisted_before)
{
	const struct session *s = p->session;

	return settle_beyond(process_figure_at(p, i), used_before,
			     ledger_used(&s->books.ledger, p->slot, i), managed_unlisted_before,
			     process_managed_unlisted(p, i), used_by_twins(p, i));
}

/* Compares a process that is never quiescent. */
static void settle_not_quiescent(struct process *p)
{
	const struct session *s = p->session;
	bool enough = p->sampled && settle_is_enough(p->not_quiescent);

	/* It asks about what it has just given back, which a sample of before that has seen. */
	if (p->ask_sample && !asks(p))
		return;
	for (uint32_t i = 0; p->sampled && i < s->record.gpu_count; i++) {
		struct process_gpu *gpu = &p->gpu[i];

		if (!is_sampled(s, i))
			return;
		gpu->least = settle_least(p->not_quiescent, gpu->least,
					  beyond(p, i, gpu->seen_used, gpu->seen_managed_unlisted));
		if (enough && gpu->least > ledger_settled(&s->books.ledger, p->slot, i))
			ledger_settle(&s->books.ledger, p->slot, i, gpu->least);
	}
	p->not_quiescent = enough ? 0 : p->not_quiescent + p->sampled;
}

/* Calls of it that have memory leaving, which its question stands for. */
static uint32_t releases_known(const struct process *p)
{
	if (!asks(p) || !p->ask_release_pending)
		return 0;
	return ledger_slot(&p->session->books.ledger, p->slot)->exported ? 2 : 1;
}

/* Before less is posted for one that may uncharge some of that itself: from now on it asks. It may
 * just have looked whether it has to. */
static bool lowers(struct process *p)
{
	struct ledger_slot *slot = ledger_slot(&p->session->books.ledger, p->slot);

	/* One that was answered may not have uncharged yet what it was told that it may. */
	if (slot->releases_in_progress > releases_known(p))
		return false;
	if (slot->growing || p->seen_maybe_freed || maybe_freed_of(slot))
		slot->daemon_corrected = 1;
	return slot->local_release_seq == p->seen_local_release_seq && was_quiescent(p);
}

/* An amount that is posted for a process that asks, or posted anew, may be too little: by memory
 * that the process has booked and does not hold. It may be about to uncharge that without asking,
 * so from now on it asks. False: it may just have uncharged it. */
static bool raises(struct process *p)
{
	const struct session *s = p->session;
	struct ledger_slot *slot = ledger_slot(&s->books.ledger, p->slot);
	bool posts = asks(p);

	if ((p->seen_certain && is_certain(slot)) ||
	    (!slot->growing && !p->seen_maybe_freed && !maybe_freed_of(slot)))
		return true;
	for (uint32_t i = 0; i < s->record.gpu_count && !posts; i++) {
		int64_t aim;

		posts = is_sampled(s, i) && settled_aim(p, i, &aim) &&
			aim > ledger_settled(&s->books.ledger, p->slot, i);
	}
	if (!posts)
		return true;
	slot->daemon_corrected = 1;
	return slot->local_release_seq == p->seen_local_release_seq && was_quiescent(p);
}

/* False: there is something to be posted in the other direction. */
static bool post(struct process *p, bool upwards)
{
	const struct session *s = p->session;
	bool all = true;

	for (uint32_t i = 0; i < s->record.gpu_count; i++) {
		int64_t aim, now = ledger_settled(&p->session->books.ledger, p->slot, i);

		if (!is_sampled(s, i) || !settled_aim(p, i, &aim))
			continue;
		if (upwards ? aim > now : aim < now && lowers(p))
			ledger_settle(&p->session->books.ledger, p->slot, i, aim);
		all &= upwards ? aim >= now : aim <= now;
	}
	return all;
}

/* All that it charged is held for certain, and what is posted is exact. */
static void certain_note(struct process *p)
{
	struct ledger_slot *slot = ledger_slot(&p->session->books.ledger, p->slot);

	if (slot->daemon_corrected && p->seen_certain && is_certain(slot))
		slot->daemon_corrected = 0;
}

/* On any GPU (settle_may_have_less()). */
static bool may_have_less(const struct process *p)
{
	const struct session *s = p->session;
	bool less = false;

	for (uint32_t i = 0; p->sampled && i < s->record.gpu_count; i++)
		less |= is_sampled(s, i) &&
			settle_may_have_less(beyond(p, i, ledger_used(&s->books.ledger, p->slot, i),
						    process_managed_unlisted(p, i)),
					     ledger_settled(&s->books.ledger, p->slot, i),
					     p->gpu[i].floor, maybe_freed(p));
	return less;
}

/* This driver tells nobody what is in which of several instances. */
static bool is_untold(const struct session *s, uint32_t position)
{
	const struct pool_gpu *gpu = &s->sessions->pool->gpu[s->pool_gpu[position]];

	return session_is_one_of_several(s, position) && gpu->parts_wanted && !gpu->sample.error &&
	       !gpu->sample.parts_known;
}

static bool is_compared(const struct process *p)
{
	return !process_is_dead(p) && is_first_twin(p);
}

/* The quiescent processes are posted to have what they have, before any is posted to have
 * less: memory that one gave up may be in another's figure now. Returns whether that was
 * deferred (settle_decide()). */
static bool session_post(struct session *s)
{
	bool has_less = false;

	s->quiescent = true;
	s->may_have_less = false;
	for (uint32_t i = 0; i < s->record.gpu_count; i++)
		s->quiescent &= s->pool_gpu[i] < 0 || is_sampled(s, i) || is_untold(s, i);
	for (struct process *p = s->processes; p; p = p->next) {
		if (!is_compared(p))
			continue;
		p->quiescent = was_quiescent(p) && raises(p);
		s->quiescent &= p->quiescent;
		if (p->quiescent) {
			p->not_quiescent = 0;
			bool exact = post(p, true);

			if (exact)
				certain_note(p);
			has_less |= !exact;
		} else {
			settle_not_quiescent(p);
			s->may_have_less |= may_have_less(p);
		}
	}
	enum settle_verdict verdict =
		settle_decide(&(struct settle_session){.exported = s->exported,
						       .quiescent = s->quiescent,
						       .has_less = has_less,
						       .may_have_less = s->may_have_less});
	if (verdict != SETTLE_LOWER)
		return verdict == SETTLE_DEFER;
	for (struct process *p = s->processes; p; p = p->next)
		if (is_compared(p) && p->quiescent)
			post(p, false);
	return false;
}

/* Memory that only open descriptors keep is nobody's, as long as they are. Returns whether more is
 * kept than that. */
static bool keep_exported_fd_bytes(struct session *s)
{
	bool more = false;

	s->fd_bytes_kept = false;
	for (uint32_t i = 0; i < s->record.gpu_count; i++) {
		uint64_t bytes = descriptors_keep(s, i), kept = ledger_kept(&s->books.ledger, i);

		if (kept < bytes)
			ledger_keep(&s->books.ledger, i, bytes);
		s->fd_bytes_kept |= bytes > 0;
		more |= kept > bytes;
	}
	return more;
}

/* False: more is kept still. */
static bool kept_give(struct session *s)
{
	if (!keep_exported_fd_bytes(s))
		return true;
	/* A daemon before this one kept it. */
	if (!s->kept_sample)
		s->kept_sample = pool_refresh(s->sessions->pool, session_gpu_mask(s));
	if (!s->quiescent || s->sessions->pool->done < s->kept_sample)
		return false;
	for (uint32_t i = 0; i < s->record.gpu_count; i++)
		ledger_keep(&s->books.ledger, i, descriptors_keep(s, i));
	s->kept_sample = 0;
	return true;
}

/* Where a question is open, its processes are made quiescent for another look, or have a pause. */
static void quiesce(struct session *s, bool wanted)
{
	_Atomic uint64_t *until = &s->books.limits->still_until_ns;

	settle_quiesce_next(&s->quiesce, wanted, wanted ? now_monotonic_ns() : 0);
	uint64_t next = settle_quiesce_until(&s->quiesce);
	if (next || *until)
		*until = next;
}

static void on_quiesce_timer(uv_timer_t *timer)
{
	struct settling *settling = timer->data;
	uint64_t mask = 0;

	for (struct session *s = settling->sessions->attached; s; s = s->next_attached) {
		if (s->quiesce.state != SETTLE_FREE || s->fd_bytes_kept || s->room_looks)
			mask |= session_gpu_mask(s);
		s->room_looks = false;
	}
	if (mask)
		pool_refresh(settling->pool, mask);
}

static uint64_t quiesce_every_ms(const struct settling *settling)
{
	return HURRY_EVERY_MS + pool_pause_ns(settling->pool, HURRY_PARTS, HURRY_MOST_NS) / 1000000;
}

static uint64_t exported_fd_every_ms(const struct descriptors *d)
{
	return MAX(DESCRIBED_EVERY_MS, DESCRIBED_EVERY_READINGS * d->read_ns / 1000000);
}

/* The next look at sessions that are made quiescent, or have a pause. */
static void quiesce_all(struct settling *settling)
{
	uint64_t delay = UINT64_MAX, now = 0;

	for (struct session *s = settling->sessions->attached; s; s = s->next_attached) {
		if (s->fd_bytes_kept)
			delay = MIN(delay, exported_fd_every_ms(&settling->descriptors));
		if (s->quiesce.state == SETTLE_HELD || s->room_looks)
			delay = MIN(delay, quiesce_every_ms(settling));
		if (s->quiesce.state != SETTLE_PAUSED)
			continue;
		now = now ? now : now_monotonic_ns();
		uint64_t left = s->quiesce.at_ns > now ? s->quiesce.at_ns - now : 0;
		delay = MIN(delay, left / 1000000 + 1);
	}
	if (delay != UINT64_MAX)
		uv_timer_start(&settling->quiesce_timer, on_quiesce_timer, delay, 0);
}

static bool somebody_waits(const struct session *s)
{
	for (struct process *p = s->processes; p; p = p->next)
		if (!process_is_dead(p) && asks(p) && p->ask_release_pending && !process_settled(p))
			return true;
	return false;
}

static bool room_is_waited_for(const struct session *s)
{
	return s->room_until_ns && now_monotonic_ns() < s->room_until_ns;
}

static void session_settle(struct session *s)
{
	s->exported = descriptors_exported(s);
	s->lowering_deferred = session_post(s);
	bool gave = kept_give(s);

	quiesce(s, !s->quiescent && (s->lowering_deferred || !gave || somebody_waits(s) ||
				     (s->may_have_less && room_is_waited_for(s))));
}

static bool is_lowerable(const struct session *s)
{
	for (uint32_t i = 0; i < s->record.gpu_count; i++) {
		if (ledger_kept(&s->books.ledger, i))
			return true;
		for (const struct process *p = s->processes; p; p = p->next)
			if (ledger_settled(&s->books.ledger, p->slot, i) > 0 ||
			    maybe_freed_of(ledger_slot(&s->books.ledger, p->slot)))
				return true;
	}
	return false;
}

uint64_t settle_room(struct session *s)
{
	if (!books_exist(&s->books) || !is_lowerable(s))
		return 0;
	s->room_until_ns = now_monotonic_ns() + LEAVING_NS;
	return pool_refresh(s->sessions->pool, session_gpu_mask(s));
}

/* The number of the next sample, which hurries no more than is good for the driver. */
static uint64_t look_again(struct session *s)
{
	struct settling *settling = s->sessions->settling;

	if (!pool_pause_ns(settling->pool, HURRY_PARTS, HURRY_MOST_NS))
		return pool_refresh(settling->pool, session_gpu_mask(s));
	s->room_looks = true;
	uint64_t delay = quiesce_every_ms(settling);
	if (!uv_is_active((uv_handle_t *)&settling->quiesce_timer) ||
	    uv_timer_get_due_in(&settling->quiesce_timer) > delay)
		uv_timer_start(&settling->quiesce_timer, on_quiesce_timer, delay, 0);
	return settling->pool->started + 1;
}

bool settle_room_known(struct session *s, uint64_t *sample)
{
	bool in = s->sessions->pool->done >= *sample;

	if (!room_is_waited_for(s) ||
	    (in && !s->may_have_less && !s->lowering_deferred && !s->kept_sample))
		return true;
	if (in)
		*sample = look_again(s);
	return false;
}

uint64_t process_settle(struct process *p, enum settle_why why, uint32_t position,
			uint64_t leaving_bytes)
{
	int64_t used = position < p->session->record.gpu_count
			       ? ledger_used(&p->session->books.ledger, p->slot, position)
			       : 0;

	p->not_quiescent = 0; /* comparisons before the call that asks do not count */
	p->ask_why = why;
	p->ask_position = position;
	p->ask_release_pending = MIN(leaving_bytes, (uint64_t)MAX(used, 0));
	process_orphans(p, position, p->ask_release_pending);
	p->ask_until_ns = now_monotonic_ns() + LEAVING_NS;
	p->ask_sample = pool_refresh(p->session->sessions->pool, session_gpu_mask(p->session));
	return p->ask_sample;
}

bool process_settled(const struct process *p)
{
	if (!p->ask_release_pending)
		return !is_first_twin(p) || (p->quiescent && !p->session->lowering_deferred);
	return process_first_twin(p)->quiescent && (p->session->quiescent || !p->session->exported);
}

bool process_settle_waits(const struct process *p)
{
	return (p->ask_release_pending || p->session->lowering_deferred) &&
	       now_monotonic_ns() < p->ask_until_ns;
}

void process_settle_end(struct process *p, bool settled)
{
	if (!settled && p->ask_release_pending)
		keep(p->session, p->ask_position, p->ask_release_pending);
	p->ask_sample = 0;
}

uint64_t process_over(const struct process *p, uint32_t position)
{
	const struct session *s = p->session;
	struct settle_reading reading;

	if (s->pool_gpu[position] < 0)
		return 0;
	reading = reading_of(p, position);
	return settle_over(&reading, ledger_slot_bytes(&s->books.ledger, p->slot, position));
}

void settle_begin(struct settling *settling, struct sessions *sessions)
{
	settling->sessions = sessions;
	settling->pool = sessions->pool;
	sessions->settling = settling;
	uv_timer_init(sessions->loop, &settling->quiesce_timer);
	settling->quiesce_timer.data = settling;
}

void settle_all(struct settling *settling)
{
	for (struct session *s = settling->sessions->attached; s; s = s->next_attached)
		session_settle(s);
	quiesce_all(settling);
}
