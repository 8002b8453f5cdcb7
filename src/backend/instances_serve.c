#include "backend/instances_serve.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "backend/gpus.h"
#include "base/error.h"
#include "base/macros.h"
#include "proto/instances.h"

_Static_assert(INSTANCES_MOST >= MIG_PROFILES_MAX, "room for a GPU's profiles");
_Static_assert(INSTANCES_MOST >= MIG_INSTANCES_MAX, "room for a GPU's instances");

struct server {
	struct gpus *gpus;
	struct instances *instances;
};

static int server_open(struct server *s)
{
	struct error ignored = {0};
	int rc = s->gpus ? 0 : gpus_open(&s->gpus, &ignored);

	if (rc == 0 && !s->instances)
		rc = instances_open(s->gpus, &s->instances);
	return rc;
}

static struct instances_one one_pack(const struct instance *from)
{
	struct instances_one one = {.bytes = from->bytes,
				    .profile_id = from->place.profile_id,
				    .start = from->place.start,
				    .size = from->place.size};

	_Static_assert(sizeof(one.pid) == sizeof(from->pid), "ABI of instances");
	snprintf(one.uuid_text, sizeof(one.uuid_text), "%s", from->uuid_text);
	memcpy(one.pid, from->pid, sizeof(one.pid));
	one.pid_count = from->pid_count;
	one.gpu_instance = from->gpu_instance;
	one.compute_instance = from->compute_instance;
	one.reserved_mib = (uint32_t)((from->reserved + MIB(1) - 1) / MIB(1));
	return one;
}

static struct instances_kind kind_pack(const struct mig_profile *p,
				       const struct instance_profile *n)
{
	struct instances_kind kind = {.bytes = p->memory_bytes,
				      .sms = p->sms,
				      .slices = p->slices,
				      .limit = p->limit,
				      .flags = p->flags,
				      .starts = p->starts,
				      .id = n->id,
				      .size = p->size};

	_Static_assert(MIG_ENGINES == ARRAY_SIZE(kind.engines), "ABI of instances");
	memcpy(kind.engines, p->engines, sizeof(kind.engines));
	snprintf(kind.name, sizeof(kind.name), "%s", n->name);
	return kind;
}

static int kinds_answer(const struct server *s, uint32_t gpu, struct instances_reply *reply)
{
	struct instance_kinds kinds;
	int rc = instances_kinds(s->instances, gpu, &kinds);

	for (uint32_t i = 0; rc == 0 && i < kinds.die.profile_count; i++)
		reply->kind[reply->count++] = kind_pack(&kinds.die.profile[i], &kinds.profile[i]);
	return rc;
}

static int list_answer(const struct server *s, const struct instances_request *request,
		       struct instances_reply *reply)
{
	struct instance_profile profiles[INSTANCES_MOST] = {0};
	struct instance list[INSTANCES_MOST];
	size_t count = 0;

	for (uint32_t i = 0; i < request->count; i++)
		profiles[i].id = request->id[i];
	int rc = instances_list(s->instances, request->gpu, profiles, request->count, list,
				INSTANCES_MOST, &count);
	for (size_t i = 0; i < count; i++)
		reply->one[reply->count++] = one_pack(&list[i]);
	return rc;
}

static int answer(struct server *s, const struct instances_request *request,
		  struct instances_reply *reply)
{
	struct instance_place place = {request->id[0], request->start, request->size};
	struct instance made;

	int rc = server_open(s);
	if (rc < 0)
		return rc;
	switch ((enum instances_op)request->op) {
	case INSTANCES_KINDS:
		return kinds_answer(s, request->gpu, reply);
	case INSTANCES_LIST:
		return list_answer(s, request, reply);
	case INSTANCES_MODE:
		return instances_mode_enable(s->instances, request->gpu, 0);
	case INSTANCES_MAKE:
		rc = instance_make(s->instances, request->gpu, &place, &made);
		if (rc == 0)
			reply->one[reply->count++] = one_pack(&made);
		return rc;
	case INSTANCES_REMOVE:
		return instance_remove(s->instances, request->gpu, &place, 0);
	}
	return -EOPNOTSUPP;
}

static int reply_send(int link_fd, struct instances_reply *reply, uint16_t op, int rc)
{
	reply->magic = INSTANCES_MAGIC;
	reply->version = INSTANCES_VERSION;
	reply->op = op;
	reply->error = -rc;
	return send(link_fd, reply, sizeof(*reply), MSG_NOSIGNAL) < 0 ? -errno : 0;
}

void instances_serve(int link_fd)
{
	struct server server = {0};
	struct instances_request request;

	for (;;) {
		struct instances_reply reply = {0};
		ssize_t n = recv(link_fd, &request, sizeof(request), MSG_TRUNC);

		if (n < 0 && errno == EINTR)
			continue;
		int rc = n <= 0 ? -EPROTO : instances_request_check(&request, (size_t)n);
		if (rc == -EPROTO)
			return;
		if (rc == 0)
			rc = answer(&server, &request, &reply);
		if (reply_send(link_fd, &reply, request.op, rc) < 0)
			return;
	}
}
