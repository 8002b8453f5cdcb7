/* The thread, and what the loop tells and asks it. */
#include "daemon/lease/leases.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/macros.h"
#include "daemon/host/peer.h"
#include "daemon/lease/lease_turns.h"

#define EVENTS 64
#define BEAT_NS (LEDGER_BEAT_MS * 1000000ull)
/* Waiters may have taken a daemon that was silent for this long for gone. With a connection they
 * wait for 8 s. A waiter without one waits for 1.5 s from the last beat that it has seen, which is
 * a beat or a look later than the daemon knows. They may open their gates this long after it is
 * back. */
#define MISSED_AFTER_NS 1400000000ull
#define MISSED_FOR_NS 5000000000ull
/* For a session that was taken over, after its start: some find it later than others. */
#define MISSED_FIRST_NS 10000000000ull
/* How long work may be on a GPU that was handed in before its time was sliced. */
#define NOT_JUDGED_NS 10000000000ull
/* The numbers in epoll of descriptors that are no member's; members' numbers are above. */
#define EVENT_TIMER 0
#define EVENT_KICK 1
#define NUMBER_FIRST 16
#define WAKE_EVENTS (EPOLLIN | EPOLLET)
/* If a turn is about to begin or to end, the thread looks without sleeping, since waking up takes
 * as long as that. It does so a 32nd of the time at most, and this much at once. Between two looks
 * the loop gets at the lock. */
#define SPIN_PART 32
#define SPIN_NS_MOST 5000000
#define SPIN_BREATHS 16
/* The thread's priority, if the daemon may set it: hand-overs come before other work that waits for
 * a CPU. */
#define THREAD_NICE (-10)

static void lock(struct leases *l)
{
	pthread_mutex_lock(&l->lock);
}

/* Something changed that the thread has to look at. */
static void unlock_kick(struct leases *l)
{
	uint64_t one = 1;

	pthread_mutex_unlock(&l->lock);
	(void)!write(l->kick_fd, &one, sizeof(one));
}

/* ---- the clock --------------------------------------------------------------------------- */

/* At `now` by CLOCK_MONOTONIC. */
static uint64_t turns_at(struct leases *l, uint64_t now)
{
	return lease_clock_look(&l->clock, now, l->lag ? l->lag(l->lag_arg, now) : 0);
}

uint64_t turns_now(struct leases *l)
{
	return turns_at(l, now_monotonic_ns());
}

uint64_t leases_now(struct leases *l)
{
	lock(l);
	uint64_t now = turns_now(l);
	pthread_mutex_unlock(&l->lock);
	return now;
}

void leases_clock(struct leases *l, leases_lag *lag, const void *arg)
{
	lock(l);
	l->lag = lag;
	l->lag_arg = arg;
	if (lag)
		l->clock = (struct lease_clock){0};
	pthread_mutex_unlock(&l->lock);
}

/* ---- the thread -------------------------------------------------------------------------- */

static void drain_counter(int fd)
{
	uint64_t count;

	(void)!read(fd, &count, sizeof(count));
}

/* Wake descriptors are not read: their flags are shared with the processes that have them, so that
 * a read may block for ever. Each writing is one event (EPOLLET), whatever the count is. */
static void event_take(struct leases *l, uint64_t number)
{
	if (number == EVENT_TIMER || number == EVENT_KICK) {
		drain_counter(number == EVENT_TIMER ? l->timer_fd : l->kick_fd);
		return;
	}
	for (struct lease_member *m = l->members; m; m = m->next)
		if (m->number == number) {
			m->woken = true;
		}
}

/* By CLOCK_MONOTONIC. */
static void timer_set(const struct leases *l, uint64_t at)
{
	struct itimerspec when = {0};

	if (at != UINT64_MAX) {
		/* 0 would switch it off. */
		when.it_value.tv_sec = (time_t)(at / 1000000000);
		when.it_value.tv_nsec = (long)(at % 1000000000) + (at == 0);
	}
	(void)timerfd_settime(l->timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
}

static uint64_t cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void breathe(void)
{
	for (unsigned i = 0; i < SPIN_BREATHS; i++)
		(void)sched_yield();
}

/* Time that passed adds to the time that it may spin; time that it span is taken off. */
static void spin_count(struct leases *l, uint64_t passed, bool spun)
{
	int64_t ns = (int64_t)MIN(passed, 1000000000u);

	l->spin_ns = MIN(l->spin_ns + ns / SPIN_PART - (spun ? ns : 0), SPIN_NS_MOST);
}

/* Waits for what happens, until then by CLOCK_MONOTONIC; returns how many events. */
static int events_wait(struct leases *l, struct epoll_event *events, uint64_t until, bool spins)
{
	if (spins) {
		breathe();
		return epoll_wait(l->poll_fd, events, EVENTS, 0);
	}
	timer_set(l, until);
	return epoll_wait(l->poll_fd, events, EVENTS, -1);
}

/* Whether waiters may have missed it: to be asked before their gates are looked at. */
static void missed_look(struct leases *l, uint64_t now)
{
	if (l->beat_ns && now - l->beat_ns > MISSED_AFTER_NS)
		l->missed_until = now + MISSED_FOR_NS;
	l->missed = now < l->missed_until;
}

/* Tells whoever waits at a gate that the daemon runs, and writes all accounts. Returns when to do
 * so again. */
static uint64_t beat(struct leases *l, uint64_t now, uint64_t lease_now)
{
	if (!l->sliced || !l->members) {
		l->beat_ns = 0;
		return UINT64_MAX;
	}
	if (now - l->beat_ns < BEAT_NS)
		return l->beat_ns + BEAT_NS;
	l->beat_ns = now;
	for (struct lease_member *m = l->members; m; m = m->next)
		member_beat(m);
	turn_accounts_write(l, true, lease_now);
	return now + BEAT_NS;
}

static void *thread_run(void *arg)
{
	struct leases *l = arg;
	struct epoll_event events[EVENTS];
	uint64_t began, spent = 0, until = UINT64_MAX, at = now_monotonic_ns();
	bool stopping = false, spins = false;

	(void)pthread_setname_np(pthread_self(), "leases");
	(void)prctl(PR_SET_TIMERSLACK, 1UL, 0, 0, 0);
	(void)setpriority(PRIO_PROCESS, (id_t)gettid(), THREAD_NICE);
	began = cpu_ns();
	while (!stopping) {
		int count = events_wait(l, events, until, spins);

		lock(l);
		uint64_t woke = now_monotonic_ns(), now = turns_at(l, woke);
		spin_count(l, woke - at, spins);
		at = woke;
		if (!spins) {
			l->look_cost_ns += spent / 8;
			l->look_cost_ns -= l->look_cost_ns / 8;
		}
		for (int i = 0; i < count; i++)
			event_take(l, events[i].data.u64);
		missed_look(l, woke);
		uint64_t next = turns_run(l, now);
		/* A GPU's clock can stand still until then: the next look tells. */
		until = next == UINT64_MAX ? next : woke + (next - MIN(now, next));
		until = MIN(until, beat(l, woke, now));
		l->clock.due = until == UINT64_MAX ? 0 : until;
		spins = next <= now + LEASES_AT_ONCE_NS && l->spin_ns > 0;
		stopping = l->stopping;
		pthread_mutex_unlock(&l->lock);
		/* All of a round, the kernel's part in waiting included. */
		spent = cpu_ns() - began;
		began += spent;
	}
	return NULL;
}

static int poll_add(const struct leases *l, int fd, uint32_t events, uint64_t number)
{
	struct epoll_event event = {.events = events, .data.u64 = number};

	return epoll_ctl(l->poll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

void leases_listen(struct leases *l, struct lease_member *m, bool listens)
{
	struct epoll_event event = {.events = listens ? WAKE_EVENTS : 0, .data.u64 = m->number};

	(void)epoll_ctl(l->poll_fd, EPOLL_CTL_MOD, m->wake_fd, &event);
	/* Its count is not 0, which is an event at once, whether there was one since or not. */
	m->heard = listens;
}

static int descriptors_make(struct leases *l)
{
	l->poll_fd = epoll_create1(EPOLL_CLOEXEC);
	l->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	l->kick_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (l->poll_fd < 0 || l->timer_fd < 0 || l->kick_fd < 0)
		return -errno;
	int rc = poll_add(l, l->timer_fd, EPOLLIN, EVENT_TIMER);
	return rc < 0 ? rc : poll_add(l, l->kick_fd, EPOLLIN, EVENT_KICK);
}

/* Signals are the loop's. */
static int thread_start(struct leases *l)
{
	sigset_t all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int rc = -pthread_create(&l->thread, NULL, thread_run, l);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}

static void leases_free(struct leases *l)
{
	while (l->members) {
		struct lease_member *m = l->members;

		l->members = m->next;
		while (m->stuck)
			member_forget_stuck(m, m->stuck->slot);
		close_fd(&m->wake_fd);
		free(m);
	}
	lease_table_free(l->table);
	owners_free(l);
	pthread_mutex_destroy(&l->lock);
	close_fd(&l->poll_fd);
	close_fd(&l->timer_fd);
	close_fd(&l->kick_fd);
	if (l->accounts)
		munmap(l->accounts, sizeof(*l->accounts));
	close_fd(&l->accounts_fd);
	free(l);
}

int leases_start(struct leases **ret)
{
	struct leases *l = calloc(1, sizeof(*l));

	if (!l)
		return -ENOMEM;
	l->poll_fd = l->timer_fd = l->kick_fd = l->accounts_fd = -1;
	l->next_number = NUMBER_FIRST;
	pthread_mutex_init(&l->lock, NULL);
	l->table = lease_table_new();
	int rc = l->table ? descriptors_make(l) : -ENOMEM;
	if (rc == 0)
		rc = thread_start(l);
	if (rc < 0) {
		leases_free(l);
		return rc;
	}
	*ret = l;
	return 0;
}

void leases_stop(struct leases *l)
{
	if (!l)
		return;
	lock(l);
	l->stopping = true;
	unlock_kick(l);
	pthread_join(l->thread, NULL);
	leases_free(l);
}

/* Work handed in uncounted, before gates were shut, is held against nobody. */
static void not_judged(struct leases *l, uint64_t gpus, uint64_t now)
{
	for (; gpus; gpus &= gpus - 1)
		l->measured_from[__builtin_ctzll(gpus)] = now + NOT_JUDGED_NS;
}

static bool any_live(const struct leases *l, uint64_t gpus)
{
	for (const struct lease_member *m = l->members; m; m = m->next)
		if (m->info.gpus & gpus && member_any(m->live))
			return true;
	return false;
}

/* ---- GPUs and members -------------------------------------------------------------------- */

void leases_set(struct leases *l, uint32_t gpu, const struct lease_setting *setting)
{
	uint64_t bit = 1ull << gpu;

	lock(l);
	uint64_t now = turns_now(l);
	if (!(l->sliced & bit) && any_live(l, bit))
		not_judged(l, bit, now);
	l->sliced = setting->mode == COMPUTE_OFF ? l->sliced & ~bit : l->sliced | bit;
	/* A member that needs leases no more gives back what it holds while the table knows of it.
	 */
	for (struct lease_member *m = l->members; m; m = m->next)
		if (m->info.gpus & bit && !(m->info.gpus & l->sliced))
			turns_member_changed(l, m, now);
	bool begins = setting->mode != COMPUTE_OFF && lease_get(l->table, gpu)->mode == COMPUTE_OFF;
	lease_set(l->table, gpu, setting, now);
	if (begins)
		turn_accounts_gpu_begin(l, gpu, now);
	else if (setting->mode == COMPUTE_OFF)
		turn_accounts_gpu_end(l, gpu);
	for (struct lease_member *m = l->members; m; m = m->next)
		if (m->info.gpus & bit && m->info.gpus & l->sliced)
			turns_member_changed(l, m, now);
	unlock_kick(l);
}

void leases_promise(struct leases *l, uint32_t gpu, uint32_t ppm)
{
	lock(l);
	lease_promise(l->table, gpu, ppm, turns_now(l));
	/* Where nobody has a part in the time, the first one who joins has the thread look at it:
	 * most jobs of a queue come and go without. */
	if (l->members)
		unlock_kick(l);
	else
		pthread_mutex_unlock(&l->lock);
}

static struct lease_member *member_new(const struct lease_joining *joining)
{
	struct lease_member *m = calloc(1, sizeof(*m));

	if (!m)
		return NULL;
	m->info = *joining;
	snprintf(m->id, sizeof(m->id), "%s", joining->id);
	m->info.id = m->id;
	m->look_at = UINT64_MAX;
	m->wake_fd =
		joining->wake_fd >= 0 ? joining->wake_fd : eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	return m;
}

static int member_add(struct leases *l, struct lease_member *m, uint64_t now)
{
	m->number = l->next_number++;
	m->culprit = m->info.owner ? m->info.owner : CULPRIT_SESSION | m->number;
	int rc = m->wake_fd < 0 ? -EMFILE : poll_add(l, m->wake_fd, WAKE_EVENTS, m->number);
	if (rc == 0)
		rc = lease_client_add(l->table, m->number, m->info.owner, m->info.gpus,
				      m->info.fraction, now);
	if (rc < 0)
		return rc;
	turn_accounts_join(l, m);
	now = turns_now(l);
	m->next = l->members;
	l->members = m;
	turns_member_changed(l, m, now);
	owners_bar(l, now);
	return 0;
}

int leases_join(struct leases *l, const struct lease_joining *joining, struct lease_member **ret)
{
	struct lease_member *m = member_new(joining);
	int wake_fd = joining->wake_fd;

	if (!m) {
		close_fd(&wake_fd);
		return -ENOMEM;
	}
	lock(l);
	int rc = member_add(l, m, turns_now(l));
	unlock_kick(l);
	if (rc < 0) {
		close_fd(&m->wake_fd);
		free(m);
		return rc;
	}
	*ret = m;
	return 0;
}

void leases_leave(struct leases *l, struct lease_member *m)
{
	struct lease_member **at;

	if (!m)
		return;
	lock(l);
	for (at = &l->members; *at != m; at = &(*at)->next)
		;
	*at = m->next;
	turns_member_remove(l, m, turns_now(l));
	turn_accounts_leave(m);
	/* Processes have it open too: closing it here would not take it off the list. */
	(void)epoll_ctl(l->poll_fd, EPOLL_CTL_DEL, m->wake_fd, NULL);
	unlock_kick(l);
	close_fd(&m->wake_fd);
	free(m);
}

void leases_share(struct leases *l, struct lease_member *m, uint32_t fraction)
{
	lock(l);
	m->info.fraction = fraction;
	lease_client_share(l->table, m->number, fraction, turns_now(l));
	unlock_kick(l);
}

void leases_unsliced(struct leases *l, struct lease_member *m, uint64_t unsliced)
{
	lock(l);
	m->gate = gate_set_unsliced(m->info.ledger, m->info.limits, m->gate, unsliced);
	pthread_mutex_unlock(&l->lock);
}

int leases_wake_fd(const struct lease_member *m)
{
	return m->wake_fd;
}

void leases_process_add(struct leases *l, struct lease_member *m, uint32_t slot, bool hears)
{
	uint64_t bit = 1ull << slot % 64;

	if (slot >= LEDGER_SLOTS_MAX)
		return;
	lock(l);
	m->live[slot / 64] |= bit;
	m->deaf[slot / 64] &= ~bit;
	if (!hears) {
		m->deaf[slot / 64] |= bit;
		l->missed_until = now_monotonic_ns() + MISSED_FIRST_NS;
		l->missed = true;
		not_judged(l, m->info.gpus, turns_now(l));
	}
	m->woken = true;
	unlock_kick(l);
}

void leases_process_gone(struct leases *l, struct lease_member *m, uint32_t slot)
{
	uint64_t bit = 1ull << slot % 64;

	if (slot >= LEDGER_SLOTS_MAX)
		return;
	lock(l);
	uint64_t now = turns_now(l);
	m->live[slot / 64] &= ~bit;
	m->deaf[slot / 64] &= ~bit;
	if (member_forget_stuck(m, slot))
		outstay_end(l, m, false, now);
	m->look_at = MIN(m->look_at, now);
	unlock_kick(l);
}

/* ---- asking ------------------------------------------------------------------------------ */

void leases_standing(struct leases *l, const struct lease_member *m, struct lease_standing *ret)
{
	struct member_look look;

	lock(l);
	uint64_t now = turns_now(l);
	*ret = (struct lease_standing){
		.sliced = m->state != MEMBER_FREE,
		.counted_from = m->info.counted_from,
		.stalls = m->stalls,
		.reopened = m->reopened,
		.forged = m->forged,
		.idle_ns = lease_idle_ns(&m->idle),
	};
	if (lease_client_stat(l->table, m->number, now, &ret->stat) < 0)
		ret->sliced = false;
	member_look(m, now, &look);
	ret->waits = look.waits;
	/* Where nobody keeps accounts, a killed daemon's are lost in any case. */
	ret->kept = l->accounts ? m->kept : lease_kept_of(&ret->stat);
	lease_measured(l->table, m->number, &ret->beyond_ns, &ret->returned_ns);
	const struct lease_owner *o = owner_find(l, m->culprit);
	if (o && lease_conduct_suspended(&o->conduct))
		ret->suspended_ns = o->conduct.until - MIN(o->conduct.until, now);
	pthread_mutex_unlock(&l->lock);
}

size_t leases_turns(struct leases *l, uint64_t from, struct lease_turn *turns, size_t room,
		    uint64_t *ret_next)
{
	size_t count = 0;

	lock(l);
	uint64_t oldest =
		l->turn_count > LEASE_TURNS_KEPT ? l->turn_count - LEASE_TURNS_KEPT + 1 : 1;
	uint64_t number = MIN(MAX(from, oldest), l->turn_count + 1);
	for (; number <= l->turn_count && count < room; number++)
		turns[count++] = l->turns[number % LEASE_TURNS_KEPT];
	*ret_next = number;
	pthread_mutex_unlock(&l->lock);
	return count;
}

size_t leases_turns_open(struct leases *l, struct lease_turn *turns, size_t room)
{
	size_t count = 0;

	lock(l);
	for (const struct lease_member *m = l->members; m && count < room; m = m->next)
		if (m->turn.opened)
			turns[count++] = m->turn;
	pthread_mutex_unlock(&l->lock);
	return count;
}
