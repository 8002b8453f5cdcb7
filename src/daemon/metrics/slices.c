#include "daemon/metrics/slices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/macros.h"
#include "daemon/gpu/pool.h"
#include "daemon/host/names.h"
#include "daemon/lease/leases.h"
#include "daemon/session/session.h"
#include "daemon/session/sessions.h"
#include "daemon/settle/outside.h"
#include "daemon/slicing/slicing.h"

/* A name that was looked up once: looking asks for the state of /etc/passwd each time. */
struct metrics_user {
	uid_t uid;
	char name[NAMES_SIZE];
};

static const struct metrics_family families[SLICE_FAMILIES] = {
	[SLICE_MEMORY_REQUEST] = {"carve_slice_memory_request_bytes",
				  "Memory that was asked for on this GPU.", METRICS_PLAIN, false},
	[SLICE_MEMORY_LIMIT] = {"carve_slice_memory_limit_bytes",
				"Memory that the slice may use: its size on this GPU.",
				METRICS_PLAIN, false},
	[SLICE_MEMORY_USED] = {"carve_slice_memory_used_bytes",
			       "Memory that the slice's processes hold.", METRICS_PLAIN, false},
	[SLICE_MEMORY_PEAK] = {"carve_slice_memory_peak_bytes",
			       "The most memory that the slice's processes held at a time.",
			       METRICS_PLAIN, false},
	[SLICE_MEMORY_REFUSED] = {"carve_slice_memory_refused_bytes",
				  "Sum of the allocations that did not fit into the slice.",
				  METRICS_PLAIN, false},
	[SLICE_GPU_SECONDS] =
		{"carve_slice_gpu_seconds_total",
		 "GPU time of the slice: its turns, or by the driver where time is not sliced.",
		 METRICS_SECONDS, true},
	[SLICE_WAIT_SECONDS] = {"carve_slice_wait_seconds_total",
				"Time for which the slice wanted a turn and had none.",
				METRICS_SECONDS, true},
	[SLICE_OVERRUN_SECONDS] = {"carve_slice_overrun_seconds_total",
				   "GPU time that the slice used after its turns were to end.",
				   METRICS_SECONDS, true},
	[SLICE_COMPUTE_REQUEST] = {"carve_slice_compute_request_ratio",
				   "Share of the GPU's time that the slice is promised.",
				   METRICS_RATIO, false},
	[SLICE_COMPUTE_LIMIT] = {"carve_slice_compute_limit_ratio",
				 "Share of the GPU's time that the slice may have at most.",
				 METRICS_RATIO, false},
	[SLICE_COMPUTE_RECEIVED] = {"carve_slice_compute_received_ratio",
				    "Share of the GPU's time that the slice had in the last 60 s.",
				    METRICS_RATIO, false},
};

void metrics_slices_begin(struct metrics_slices *s)
{
	*s = (struct metrics_slices){0};
	budget_begin_any(&s->budget, METRICS_SLICES_MAX);
}

void metrics_slices_free(struct metrics_slices *s)
{
	free(s->slice);
	free(s->users);
	metrics_text_free(&s->labels);
	budget_free(&s->budget);
}

static const char *user_name(struct metrics_slices *s, uid_t uid)
{
	for (size_t i = 0; i < s->user_count; i++)
		if (s->users[i].uid == uid)
			return s->users[i].name;
	struct metrics_user *users =
		array_grown(s->users, s->user_count, &s->user_room, sizeof(*users));
	if (!users)
		return names_of(NAMES_OF_USERS, uid);
	s->users = users;
	struct metrics_user *user = &users[s->user_count++];
	user->uid = uid;
	snprintf(user->name, sizeof(user->name), "%s", names_of(NAMES_OF_USERS, uid));
	return user->name;
}

/* The parts of NAMESPACE/POD/CONTAINER. */
static void pod_write(struct metrics_text *labels, size_t begun, const char *pod)
{
	static const char *const names[] = {"namespace", "pod", "container"};

	for (size_t i = 0; i < ARRAY_SIZE(names) && *pod; i++) {
		char part[STORE_POD_SIZE];
		size_t size = strcspn(pod, "/");

		snprintf(part, sizeof(part), "%.*s", (int)size, pod);
		metrics_label(labels, begun, names[i], part);
		pod += size + (pod[size] == '/');
	}
}

static void labels_write(struct metrics_slices *s, const struct session *session, uint32_t i)
{
	const struct store_session *record = &session->record;
	const struct store_gpu *gpu = &record->gpu[i];
	struct metrics_text *labels = &s->labels;
	size_t begun = labels->size;
	char index[16];

	snprintf(index, sizeof(index), "%u", gpu->index);
	metrics_label(labels, begun, "gpu", index);
	metrics_label(labels, begun, "gpu_uuid", gpu->uuid_text);
	/* A session may have several instances of one GPU. */
	metrics_label(labels, begun, "instance_uuid", gpu->instance);
	metrics_label(labels, begun, "session", record->id);
	metrics_label(labels, begun, "user", user_name(s, record->uid));
	metrics_label(labels, begun, "name", record->name);
	pod_write(labels, begun, record->pod);
}

static void memory_read(const struct session *session, uint32_t i, uint64_t *number)
{
	const struct store_gpu *gpu = &session->record.gpu[i];
	uint64_t peak = session_peak(session, i);

	number[SLICE_MEMORY_REQUEST] = gpu->requested;
	number[SLICE_MEMORY_LIMIT] = gpu->bytes;
	number[SLICE_MEMORY_USED] = session_uses(session, i);
	number[SLICE_MEMORY_PEAK] = peak; /* METRICS_NONE where nobody saw it */
	number[SLICE_MEMORY_REFUSED] =
		books_exist(&session->books) ? ledger_gpu(&session->books.ledger, i)->refused_bytes
					     : 0;
}

/* A slice without a process has zeros. Where time is not sliced nobody waits for a turn, and
 * the driver's figures say who used how much. */
static void time_read(const struct session *session, uint32_t i, const struct lease_standing *of,
		      uint64_t *number)
{
	int position = session->pool_gpu[i];
	bool sliced = position >= 0 && session->sessions->pool->gpu[position].mode != COMPUTE_OFF;
	/* A ledger from before there were leases has no turns. */
	bool known = sliced && (session->lease || !books_exist(&session->books));
	bool told = position >= 0 && !sliced && !session->record.gpu[i].instance[0] &&
		    !session->sessions->pool->gpu[position].use_untold;
	uint32_t request, limit;

	slicing_shares(session, &request, &limit);
	number[SLICE_GPU_SECONDS] =
		known || told ? of->kept.held_ns + session->used_ns[i] : METRICS_NONE;
	number[SLICE_WAIT_SECONDS] = of->kept.waited_ns;
	number[SLICE_OVERRUN_SECONDS] = of->kept.overrun_ns;
	number[SLICE_COMPUTE_REQUEST] = request;
	number[SLICE_COMPUTE_LIMIT] = limit;
	number[SLICE_COMPUTE_RECEIVED] = known ? of->stat.received_minute_ppm : METRICS_NONE;
}

bool metrics_slices_add(struct metrics_slices *s, const struct session *session)
{
	struct lease_standing standing = {0};
	uid_t owner;

	if (session->lease)
		leases_standing(session->sessions->leases, session->lease, &standing);
	for (uint32_t i = 0; i < session->record.gpu_count; i++) {
		if (!budget_enter(&s->budget, session->record.uid, &owner)) {
			s->left_out++;
			continue;
		}
		struct metrics_slice *grown =
			array_grown(s->slice, s->count, &s->room, sizeof(*grown));
		if (!grown)
			return false;
		s->slice = grown;
		struct metrics_slice *slice = &grown[s->count++];
		slice->labels = s->labels.size;
		labels_write(s, session, i);
		slice->labels_size = s->labels.size - slice->labels;
		memory_read(session, i, slice->number);
		time_read(session, i, &standing, slice->number);
	}
	return !s->labels.failed;
}

void metrics_slices_write(const struct metrics_slices *s, enum metrics_slice_family family,
			  struct metrics_text *text)
{
	const struct metrics_family *of = &families[family];

	if (!s->count)
		return;
	metrics_family_begin(text, of);
	for (size_t i = 0; i < s->count; i++) {
		const struct metrics_slice *slice = &s->slice[i];

		metrics_sample(text, of, s->labels.data + slice->labels, slice->labels_size,
			       slice->number[family]);
	}
}
