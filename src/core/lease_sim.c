#include "core/lease_sim.h"

#include <errno.h>
#include <stdlib.h>

#include "base/macros.h"

#define NEVER UINT64_MAX
#define OPEN_NS 100000ull
#define IDLE_NS 200000ull
/* The work that a client may have in flight, as the daemon bounds it; one kernel in any case. */
#define IN_FLIGHT_NS 5000000ull
/* Actions at one moment: more of them lead nowhere. */
#define ACTIONS_MAX 4096u

/* FREE: none of its GPUs is time-sliced. */
enum gate { GATE_SHUT, GATE_OPENING, GATE_HELD, GATE_DRAINING, GATE_FREE };

struct client {
	struct lease_sim_client is;
	struct lease_sim_result result;
	enum gate gate;
	uint64_t held; /* GPUs: bit mask */
	bool here, works;
	bool told;         /* the value of `works` that the policy knows */
	uint64_t work;     /* GPU time that its burst still needs; NEVER: no end */
	uint64_t used_at;  /* until when `work` and busy_ns count */
	uint64_t burst_at; /* when the burst began */
	uint64_t wait_at, from, until;
	uint64_t burst_next; /* when it has work again */
	uint64_t gate_next;  /* when its gate is open, or drained */
	uint64_t quiet_next; /* when the policy is told that it has no work */
};

struct lease_sim {
	struct lease_table *table;
	uint64_t now, policy_next, state;
	uint64_t open_ns, idle_ns;
	struct client *clients;
	uint32_t count;
	uint32_t holders[LEASE_GPUS_MAX];
	uint32_t workers[LEASE_GPUS_MAX];
	uint64_t books_at[LEASE_GPUS_MAX], idle[LEASE_GPUS_MAX], wasted[LEASE_GPUS_MAX];
	void (*span)(void *context, const struct lease_sim_span *span);
	void *context;
	const char *fault;
};

static uint64_t random_next(struct lease_sim *sim)
{
	sim->state ^= sim->state << 13;
	sim->state ^= sim->state >> 7;
	sim->state ^= sim->state << 17;
	return sim->state;
}

/* Uniform in [0, 2 * mean]. */
static uint64_t around(struct lease_sim *sim, uint64_t mean)
{
	return mean ? random_next(sim) % (2 * mean + 1) : 0;
}

struct lease_sim *lease_sim_new(uint64_t seed,
				void (*span)(void *context, const struct lease_sim_span *span),
				void *context)
{
	struct lease_sim *sim = calloc(1, sizeof(*sim));

	if (!sim)
		return NULL;
	*sim = (struct lease_sim){.state = seed * 0x9e3779b97f4a7c15ull + 1,
				  .open_ns = OPEN_NS,
				  .idle_ns = IDLE_NS,
				  .span = span,
				  .context = context};
	sim->table = lease_table_new();
	if (!sim->table) {
		free(sim);
		return NULL;
	}
	return sim;
}

void lease_sim_free(struct lease_sim *sim)
{
	if (!sim)
		return;
	lease_table_free(sim->table);
	free(sim->clients);
	free(sim);
}

void lease_sim_costs(struct lease_sim *sim, uint64_t open_ns, uint64_t idle_ns)
{
	sim->open_ns = open_ns;
	sim->idle_ns = idle_ns;
}

int lease_sim_add(struct lease_sim *sim, const struct lease_sim_client *client)
{
	struct client *more = realloc(sim->clients, (sim->count + 1) * sizeof(*more));

	if (!more)
		return -ENOMEM;
	sim->clients = more;
	sim->clients[sim->count] = (struct client){.is = *client,
						   .burst_next = client->arrives,
						   .gate_next = NEVER,
						   .quiet_next = NEVER};
	if (!client->leaves)
		sim->clients[sim->count].is.leaves = NEVER;
	sim->count++;
	return (int)sim->count - 1;
}

static uint64_t sliced(const struct lease_sim *sim, const struct client *c)
{
	uint64_t mask = 0;

	for (uint64_t m = c->is.gpus; m; m &= m - 1)
		if (lease_get(sim->table, (uint32_t)__builtin_ctzll(m))->mode != COMPUTE_OFF)
			mask |= m & -m;
	return mask;
}

/* To be called before holders or workers change. */
static void gpu_books(struct lease_sim *sim, uint32_t gpu)
{
	uint64_t ns = sim->now - sim->books_at[gpu];

	sim->books_at[gpu] = sim->now;
	if (sim->holders[gpu])
		return;
	sim->idle[gpu] += ns;
	sim->wasted[gpu] += sim->workers[gpu] ? ns : 0;
}

/* Makes `mask` what it holds. `shared`: GPUs whose mode was off may have several holders at first.
 */
static void gpus_hold(struct lease_sim *sim, struct client *c, uint64_t mask, bool shared)
{
	for (uint64_t m = c->held ^ mask; m; m &= m - 1) {
		uint32_t gpu = (uint32_t)__builtin_ctzll(m);

		gpu_books(sim, gpu);
		if (c->held >> gpu & 1)
			sim->holders[gpu]--;
		else if (sim->holders[gpu]++ && !shared)
			sim->fault = "two clients hold one GPU";
	}
	c->held = mask;
}

static void works_set(struct lease_sim *sim, struct client *c, bool works)
{
	for (uint64_t m = c->works != works ? c->is.gpus : 0; m; m &= m - 1) {
		uint32_t gpu = (uint32_t)__builtin_ctzll(m);

		gpu_books(sim, gpu);
		sim->workers[gpu] += works ? 1 : -1;
	}
	c->works = works;
}

/* ---- clients' own steps ---- */

static uint64_t id_of(const struct lease_sim *sim, const struct client *c)
{
	return (uint64_t)(c - sim->clients);
}

static bool uses(const struct client *c)
{
	return c->works &&
	       (c->gate == GATE_HELD || c->gate == GATE_DRAINING || c->gate == GATE_FREE);
}

/* The GPU worked for it until now. */
static void use(struct lease_sim *sim, struct client *c)
{
	uint64_t ns = sim->now - c->used_at;

	c->used_at = sim->now;
	if (!uses(c))
		return;
	c->result.busy_ns += ns;
	if (c->gate == GATE_FREE)
		c->result.free_ns += ns;
	if (c->work != NEVER)
		c->work -= MIN(c->work, ns);
}

static void tell(struct lease_sim *sim, struct client *c, bool wants)
{
	c->quiet_next = NEVER;
	if (c->told == wants)
		return;
	c->told = wants;
	lease_wants(sim->table, id_of(sim, c), wants, sim->now);
}

static void work_begin(struct lease_sim *sim, struct client *c)
{
	use(sim, c);
	works_set(sim, c, true);
	c->work = NEVER;
	if (c->is.work_ns)
		c->work = (c->is.random ? around(sim, c->is.work_ns) : c->is.work_ns) + 1;
	c->burst_next = NEVER;
	c->burst_at = c->wait_at = sim->now;
	tell(sim, c, true);
}

static void opened(struct lease_sim *sim, struct client *c)
{
	use(sim, c);
	c->gate = GATE_HELD;
	c->gate_next = NEVER;
	c->from = sim->now;
	lease_opened(sim->table, id_of(sim, c), sim->now);
	if (!c->works)
		return;
	uint64_t waited = sim->now - c->wait_at;
	c->result.waits++;
	c->result.wait_sum_ns += waited;
	c->result.wait_longest_ns = MAX(c->result.wait_longest_ns, waited);
}

static void closed(struct lease_sim *sim, struct client *c)
{
	struct lease_sim_span span = {(uint32_t)id_of(sim, c), c->from, sim->now, c->until};

	use(sim, c);
	c->gate = GATE_SHUT;
	c->gate_next = NEVER;
	c->wait_at = sim->now;
	gpus_hold(sim, c, 0, false);
	lease_closed(sim->table, id_of(sim, c), sim->now);
	if (sim->span)
		sim->span(sim->context, &span);
}

/* How long the kernels in flight take from now on. These are the one that runs, and those behind it
 * that the bound lets in, up to where the client waits for them. */
static uint64_t in_flight(const struct lease_sim *sim, const struct client *c)
{
	uint64_t kernel = MAX(c->is.kernel_ns, 1), ran = sim->now - c->from;
	uint64_t batch = kernel * c->is.sync_every, first = ran / kernel;
	uint64_t end = (first + MAX(IN_FLIGHT_NS / kernel, 1)) * kernel;

	return MIN(end, (ran / batch + 1) * batch) - ran;
}

/* Its gate shuts; work that was handed in goes on for a while. */
static void revoked(struct lease_sim *sim, struct client *c)
{
	uint64_t kernel = c->is.random ? around(sim, c->is.kernel_ns / 2) : c->is.kernel_ns / 2;

	if (c->is.sync_every)
		kernel = in_flight(sim, c);
	use(sim, c);
	c->until = sim->now; /* it may have been extended since the grant */
	c->gate = GATE_DRAINING;
	c->gate_next = sim->now + (c->works ? MIN(kernel + c->is.drain_ns, c->work) : 0);
}

static void arrive(struct lease_sim *sim, struct client *c)
{
	c->here = true;
	if (lease_client_add(sim->table, id_of(sim, c), c->is.owner, c->is.gpus, c->is.fraction_ppm,
			     sim->now) < 0)
		sim->fault = "a client could not be added";
	c->gate = sliced(sim, c) ? GATE_SHUT : GATE_FREE;
	c->burst_next = NEVER;
	if (!c->is.idle)
		work_begin(sim, c);
}

static void leave(struct lease_sim *sim, struct client *c)
{
	use(sim, c);
	lease_client_stat(sim->table, id_of(sim, c), sim->now, &c->result.stat);
	if (c->gate == GATE_HELD || c->gate == GATE_DRAINING)
		closed(sim, c);
	gpus_hold(sim, c, 0, false);
	if (c->works)
		c->result.wanting_ns += sim->now - c->burst_at;
	lease_client_remove(sim->table, id_of(sim, c), sim->now);
	works_set(sim, c, false);
	c->here = c->told = false;
	c->gate = GATE_SHUT;
	c->burst_next = c->gate_next = c->quiet_next = c->is.leaves = NEVER;
}

static void work_end(struct lease_sim *sim, struct client *c)
{
	uint64_t took = sim->now - c->burst_at;

	works_set(sim, c, false);
	c->result.bursts++;
	c->result.burst_sum_ns += took;
	c->result.burst_longest_ns = MAX(c->result.burst_longest_ns, took);
	c->result.wanting_ns += took;
	c->burst_next = sim->now + 1 + (c->is.random ? around(sim, c->is.rest_ns) : c->is.rest_ns);
	c->quiet_next = sim->now + sim->idle_ns;
	if (!c->is.visits)
		return;
	uint64_t again = c->burst_next;
	leave(sim, c);
	c->burst_next = again;
}

static uint64_t next_of(const struct client *c)
{
	uint64_t next = MIN(MIN(c->burst_next, c->gate_next), MIN(c->quiet_next, c->is.leaves));

	if (uses(c) && c->work != NEVER)
		next = MIN(next, c->used_at + c->work);
	return next;
}

static void happen(struct lease_sim *sim, struct client *c)
{
	use(sim, c);
	if (sim->now >= c->is.leaves)
		leave(sim, c);
	else if (c->works && !c->work)
		work_end(sim, c);
	else if (sim->now >= c->gate_next && c->gate == GATE_OPENING)
		opened(sim, c);
	else if (sim->now >= c->gate_next)
		closed(sim, c);
	else if (sim->now >= c->burst_next && !c->here)
		arrive(sim, c);
	else if (sim->now >= c->burst_next)
		work_begin(sim, c);
	else if (sim->now >= c->quiet_next)
		tell(sim, c, false);
}

/* ---- the policy ---- */

static void act(struct lease_sim *sim, const struct lease_action *action)
{
	struct client *c = &sim->clients[action->id];

	if (action->kind == LEASE_GRANT) {
		if (c->gate != GATE_SHUT)
			sim->fault = "a client was granted twice";
		gpus_hold(sim, c, sliced(sim, c), false);
		use(sim, c);
		c->gate = GATE_OPENING;
		c->gate_next = sim->now + sim->open_ns;
		c->until = action->until;
	} else if (action->kind == LEASE_REVOKE) {
		if (c->gate != GATE_HELD)
			sim->fault = "one that holds nothing was revoked";
		revoked(sim, c);
	}
}

static void policy(struct lease_sim *sim)
{
	for (uint32_t i = 0; i < ACTIONS_MAX; i++) {
		struct lease_action action = lease_next(sim->table, sim->now, &sim->policy_next);

		if (action.kind == LEASE_NONE) {
			if (sim->policy_next <= sim->now)
				sim->fault = "the policy wants to be asked again at once";
			return;
		}
		act(sim, &action);
	}
	sim->fault = "the policy has no end of actions";
}

/* As the daemon does when modes change. */
static void gates_set(struct lease_sim *sim, struct client *c)
{
	uint64_t mask = sliced(sim, c);

	use(sim, c);
	if (!mask) {
		c->gate = GATE_FREE;
		c->gate_next = NEVER;
		gpus_hold(sim, c, 0, false);
	} else if (c->gate == GATE_FREE && c->works) {
		gpus_hold(sim, c, mask, true);
		c->gate = GATE_HELD;
		c->from = c->until = sim->now;
		lease_opened(sim->table, id_of(sim, c), sim->now);
	} else if (c->gate == GATE_FREE) {
		c->gate = GATE_SHUT;
	} else if (c->gate != GATE_SHUT) {
		gpus_hold(sim, c, mask, true);
	}
}

void lease_sim_set(struct lease_sim *sim, uint32_t gpu, const struct lease_setting *setting)
{
	lease_set(sim->table, gpu, setting, sim->now);
	for (uint32_t i = 0; i < sim->count; i++)
		if (sim->clients[i].here)
			gates_set(sim, &sim->clients[i]);
	sim->policy_next = sim->now;
}

int lease_sim_run(struct lease_sim *sim, uint64_t until)
{
	while (!sim->fault) {
		uint64_t next = sim->policy_next;
		struct client *first = NULL;

		for (uint32_t i = 0; i < sim->count; i++)
			if (next_of(&sim->clients[i]) < next) {
				first = &sim->clients[i];
				next = next_of(first);
			}
		if (next > until)
			break;
		sim->now = MAX(sim->now, next);
		if (first)
			happen(sim, first);
		policy(sim);
	}
	sim->now = MAX(sim->now, until);
	for (uint32_t i = 0; i < sim->count; i++)
		use(sim, &sim->clients[i]);
	for (uint32_t gpu = 0; gpu < LEASE_GPUS_MAX; gpu++)
		gpu_books(sim, gpu);
	return sim->fault ? -EPROTO : 0;
}

void lease_sim_flush(struct lease_sim *sim)
{
	for (uint32_t i = 0; i < sim->count; i++) {
		const struct client *c = &sim->clients[i];
		struct lease_sim_span span = {i, c->from, sim->now, UINT64_MAX};

		if (sim->span && (c->gate == GATE_HELD || c->gate == GATE_DRAINING))
			sim->span(sim->context, &span);
	}
}

void lease_sim_forget(struct lease_sim *sim)
{
	for (uint32_t i = 0; i < sim->count; i++) {
		sim->clients[i].result.wait_longest_ns = 0;
		sim->clients[i].result.burst_longest_ns = 0;
	}
}

const char *lease_sim_fault(const struct lease_sim *sim)
{
	return sim->fault;
}

uint64_t lease_sim_now(const struct lease_sim *sim)
{
	return sim->now;
}

struct lease_table *lease_sim_table(struct lease_sim *sim)
{
	return sim->table;
}

struct lease_sim_result lease_sim_result(const struct lease_sim *sim, uint32_t client)
{
	const struct client *c = &sim->clients[client];
	struct lease_sim_result result = c->result;

	if (c->here)
		lease_client_stat(sim->table, client, sim->now, &result.stat);
	if (c->here && c->works)
		result.wanting_ns += sim->now - c->burst_at;
	return result;
}

uint64_t lease_sim_idle(const struct lease_sim *sim, uint32_t gpu)
{
	return sim->idle[gpu];
}

uint64_t lease_sim_wasted(const struct lease_sim *sim, uint32_t gpu)
{
	return sim->wasted[gpu];
}
