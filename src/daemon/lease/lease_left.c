/* The state of turns over an upgrade: lists of numbers of core/lease_left.h, as JSON. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/macros.h"
#include "core/lease_left.h"
#include "daemon/host/peer.h"
#include "daemon/lease/lease_service.h"

static json_t *numbers_json(const int64_t *numbers, size_t count)
{
	json_t *list = json_array();

	for (size_t i = 0; i < count; i++)
		json_array_append_new(list, json_integer(numbers[i]));
	return list;
}

static size_t numbers_read(const json_t *list, int64_t numbers[static LEASE_LEFT_MAX])
{
	size_t count = json_array_size(list);

	for (size_t i = 0; i < count && i < LEASE_LEFT_MAX; i++)
		numbers[i] = json_integer_value(json_array_get(list, i));
	return count > LEASE_LEFT_MAX ? 0 : count;
}

json_t *leases_leave_gpu(struct leases *l, uint32_t gpu)
{
	int64_t numbers[LEASE_LEFT_MAX];

	pthread_mutex_lock(&l->lock);
	size_t count = lease_gpu_leave(l->table, gpu, turns_now(l), numbers);
	pthread_mutex_unlock(&l->lock);
	return numbers_json(numbers, count);
}

void leases_take_up_gpu(struct leases *l, uint32_t gpu, const json_t *left)
{
	int64_t numbers[LEASE_LEFT_MAX];
	size_t count = numbers_read(left, numbers);

	pthread_mutex_lock(&l->lock);
	(void)lease_gpu_take_up(l->table, gpu, numbers, count, turns_now(l));
	pthread_mutex_unlock(&l->lock);
}

json_t *leases_leave_member(struct leases *l, const struct lease_member *m)
{
	int64_t numbers[LEASE_LEFT_MAX];

	pthread_mutex_lock(&l->lock);
	size_t count = lease_client_leave(l->table, m->number, turns_now(l), numbers);
	uint64_t stalls = m->stalls, reopened = m->reopened;
	pthread_mutex_unlock(&l->lock);
	return json_pack("{s:o, s:I, s:I}", "account", numbers_json(numbers, count), "stalls",
			 (json_int_t)stalls, "reopened", (json_int_t)reopened);
}

void leases_take_up_member(struct leases *l, struct lease_member *m, const json_t *left)
{
	int64_t numbers[LEASE_LEFT_MAX];
	size_t count = numbers_read(json_object_get(left, "account"), numbers);

	pthread_mutex_lock(&l->lock);
	/* A clock that never goes back was that of the program before, too. */
	lease_clock_raise(&l->clock, MIN(lease_client_left_at(numbers, count), now_monotonic_ns()));
	(void)lease_client_take_up(l->table, m->number, numbers, count, turns_now(l));
	m->stalls = (uint64_t)json_integer_value(json_object_get(left, "stalls"));
	m->reopened = (uint64_t)json_integer_value(json_object_get(left, "reopened"));
	pthread_mutex_unlock(&l->lock);
}
