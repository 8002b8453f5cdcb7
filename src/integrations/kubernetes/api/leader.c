#include "integrations/kubernetes/api/leader.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/units.h"
#include "client/client.h"

#define TIMEOUT_MS 4000L
/* A process that is to end waits for both of its calls this long. */
#define RESIGN_TIMEOUT_MS 500L

bool leader_may_take(struct leader *leader, const json_t *lease, long long now_ms)
{
	const json_t *metadata = json_object_get(lease, "metadata");
	const char *holder = json_text(json_object_get(lease, "spec"), "holderIdentity");
	char seen[sizeof(leader->seen)];

	snprintf(seen, sizeof(seen), "%.*s %.64s", LEADER_NAME_SIZE, holder,
		 json_text(metadata, "resourceVersion"));
	if (strcmp(seen, leader->seen) != 0) {
		memcpy(leader->seen, seen, sizeof(seen));
		leader->seen_ms = now_ms;
	}
	return !*holder || !strcmp(holder, leader->identity) ||
	       now_ms - leader->seen_ms >= LEADER_LEASE_MS;
}

/* The lease as this one wants it, from what is there. */
static json_t *lease_make(const struct leader *leader, const json_t *there, const char *holder)
{
	char now[UNITS_TEXT_SIZE];
	json_t *lease = there ? json_deep_copy(there)
			      : json_pack("{s:s, s:s, s:{s:s, s:s}}", "apiVersion",
					  "coordination.k8s.io/v1", "kind", "Lease", "metadata",
					  "name", leader->name, "namespace", leader->namespace);
	json_t *before = json_object_get(there, "spec");
	bool changes = strcmp(json_text(before, "holderIdentity"), holder) != 0;
	json_int_t moves = json_integer_value(json_object_get(before, "leaseTransitions"));

	units_format_time(now_realtime_ns(), UNITS_MICROSECONDS, now);
	json_t *spec = json_pack("{s:s, s:i, s:s, s:s, s:I}", "holderIdentity", holder,
				 "leaseDurationSeconds", LEADER_LEASE_MS / 1000, "renewTime", now,
				 "acquireTime", changes ? now : json_text(before, "acquireTime"),
				 "leaseTransitions", moves + (changes && there));
	if (!lease || !spec || json_object_set_new(lease, "spec", spec) < 0) {
		json_decref(lease);
		return NULL;
	}
	return lease;
}

static int lease_write(struct leader *leader, const json_t *there, const char *holder,
		       long timeout_ms, struct error *err)
{
	char path[512];
	struct api_call call = {
		.method = there ? "PUT" : "POST", .path = path, .timeout_ms = timeout_ms};
	cleanup_json json_t *lease = lease_make(leader, there, holder), *answer = NULL;
	long status;

	snprintf(path, sizeof(path), "/apis/coordination.k8s.io/v1/namespaces/%s/leases%s%s",
		 leader->namespace, there ? "/" : "", there ? leader->name : "");
	if (!lease)
		return error_set(err, EXIT_CODE_FAILED, "out of memory");
	call.body = lease;
	int rc = api_call(leader->api, &call, &status, &answer, err);
	if (rc < 0)
		return rc;
	return status < 200 || status > 299 ? api_status_error(&call, status, answer, err) : 0;
}

static int lease_read(struct leader *leader, long timeout_ms, json_t **ret, long *ret_status,
		      struct error *err)
{
	char path[512];
	struct api_call call = {.method = "GET", .path = path, .timeout_ms = timeout_ms};

	snprintf(path, sizeof(path), "/apis/coordination.k8s.io/v1/namespaces/%s/leases/%s",
		 leader->namespace, leader->name);
	int rc = api_call(leader->api, &call, ret_status, ret, err);
	if (rc == 0 && ((*ret_status != 200 && *ret_status != 404) || !*ret))
		rc = api_status_error(&call, *ret_status, *ret, err);
	return rc;
}

int leader_turn(struct leader *leader, struct error *err)
{
	cleanup_json json_t *lease = NULL;
	long long began = now_monotonic_ms();
	long status = 0;
	int rc = lease_read(leader, TIMEOUT_MS, &lease, &status, err);
	bool may = rc == 0 && (status == 404 || leader_may_take(leader, lease, began));

	if (rc == 0 && !may)
		leader->leads = false;
	if (may)
		rc = lease_write(leader, status == 404 ? NULL : lease, leader->identity, TIMEOUT_MS,
				 err);
	if (may && rc == 0) {
		leader->renewed_ms = began;
		leader->leads = true;
	}
	/* Others may take it LEADER_LEASE_MS after they saw it renewed. */
	if (leader->leads &&
	    now_monotonic_ms() - leader->renewed_ms > LEADER_LEASE_MS - LEADER_RENEW_MS)
		leader->leads = false;
	return rc;
}

void leader_resign(struct leader *leader)
{
	cleanup_json json_t *lease = NULL;
	struct error ignored = {0};
	long status;

	if (leader->leads &&
	    lease_read(leader, RESIGN_TIMEOUT_MS, &lease, &status, &ignored) == 0 &&
	    status == 200 &&
	    !strcmp(json_text(json_object_get(lease, "spec"), "holderIdentity"), leader->identity))
		(void)lease_write(leader, lease, "", RESIGN_TIMEOUT_MS, &ignored);
	leader->leads = false;
}
