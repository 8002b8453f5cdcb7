/* The side of proto/instances.h that has no rights. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "backend/instances_serve.h"
#include "base/macros.h"
#include "proto/instances.h"

struct instances_link {
	int fd;
	pthread_mutex_t lock; /* one question at a time */
};

int instances_link_open(int link_fd, struct instances_link **ret)
{
	struct instances_link *link = calloc(1, sizeof(*link));

	if (!link)
		return -ENOMEM;
	link->fd = link_fd;
	pthread_mutex_init(&link->lock, NULL);
	*ret = link;
	return 0;
}

void instances_link_close(struct instances_link *link)
{
	if (!link)
		return;
	pthread_mutex_destroy(&link->lock);
	free(link);
}

static int exchange(struct instances_link *link, const struct instances_request *request,
		    struct instances_reply *reply)
{
	ssize_t n = send(link->fd, request, sizeof(*request), MSG_NOSIGNAL);

	do {
		n = n < 0 ? n : recv(link->fd, reply, sizeof(*reply), MSG_TRUNC);
	} while (n < 0 && errno == EINTR);
	return n <= 0 || instances_reply_check(reply, (size_t)n, request->op) < 0 ? -EPIPE
										  : -reply->error;
}

static int ask(struct instances_link *link, struct instances_request *request,
	       struct instances_reply *reply)
{
	request->magic = INSTANCES_MAGIC;
	request->version = INSTANCES_VERSION;
	pthread_mutex_lock(&link->lock);
	int rc = exchange(link, request, reply);
	pthread_mutex_unlock(&link->lock);
	return rc;
}

static struct instance one_unpack(const struct instances_one *from)
{
	struct instance one = {.place = {from->profile_id, from->start, from->size},
			       .bytes = from->bytes};

	snprintf(one.uuid_text, sizeof(one.uuid_text), "%.*s", (int)sizeof(from->uuid_text) - 1,
		 from->uuid_text);
	memcpy(one.pid, from->pid, sizeof(one.pid));
	one.reserved = MIB((uint64_t)from->reserved_mib);
	one.gpu_instance = from->gpu_instance;
	one.compute_instance = from->compute_instance;
	one.pid_count = MIN(from->pid_count, INSTANCE_PIDS_MAX);
	return one;
}

static void kind_unpack(const struct instances_kind *from, struct mig_profile *p,
			struct instance_profile *n)
{
	*p = (struct mig_profile){.memory_bytes = from->bytes,
				  .sms = from->sms,
				  .slices = from->slices,
				  .limit = from->limit,
				  .flags = from->flags,
				  .starts = from->starts,
				  .size = from->size};
	memcpy(p->engines, from->engines, sizeof(p->engines));
	n->id = from->id;
	snprintf(n->name, sizeof(n->name), "%.*s", (int)sizeof(from->name) - 1, from->name);
}

int instances_link_kinds(struct instances_link *link, uint32_t gpu, struct instance_kinds *ret)
{
	struct instances_request request = {.op = INSTANCES_KINDS, .gpu = gpu};
	struct instances_reply reply;
	int rc = ask(link, &request, &reply);

	if (rc < 0)
		return rc;
	memset(ret, 0, sizeof(*ret));
	for (uint32_t i = 0; i < MIN(reply.count, MIG_PROFILES_MAX); i++, ret->die.profile_count++)
		kind_unpack(&reply.kind[i], &ret->die.profile[i], &ret->profile[i]);
	return mig_die_init(&ret->die);
}

int instances_link_mode(struct instances_link *link, uint32_t gpu)
{
	struct instances_request request = {.op = INSTANCES_MODE, .gpu = gpu};
	struct instances_reply reply;

	return ask(link, &request, &reply);
}

int instances_link_list(struct instances_link *link, uint32_t gpu,
			const struct instance_profile *profiles, size_t profile_count,
			struct instance *list, size_t max, size_t *ret_count)
{
	struct instances_request request = {.op = INSTANCES_LIST, .gpu = gpu};
	struct instances_reply reply;

	for (size_t i = 0; i < MIN(profile_count, INSTANCES_MOST); i++)
		request.id[request.count++] = profiles[i].id;
	int rc = ask(link, &request, &reply);
	if (rc < 0)
		return rc;
	*ret_count = MIN(reply.count, max);
	for (size_t i = 0; i < *ret_count; i++)
		list[i] = one_unpack(&reply.one[i]);
	return 0;
}

static struct instances_request place_ask(enum instances_op op, uint32_t gpu,
					  const struct instance_place *place)
{
	return (struct instances_request){.op = (uint16_t)op,
					  .gpu = gpu,
					  .count = 1,
					  .start = place->start,
					  .size = place->size,
					  .id = {place->profile_id}};
}

int instances_link_make(struct instances_link *link, uint32_t gpu,
			const struct instance_place *place, struct instance *ret)
{
	struct instances_request request = place_ask(INSTANCES_MAKE, gpu, place);
	struct instances_reply reply;
	int rc = ask(link, &request, &reply);

	if (rc == 0)
		*ret = one_unpack(&reply.one[0]);
	return rc;
}

int instances_link_remove(struct instances_link *link, uint32_t gpu,
			  const struct instance_place *place)
{
	struct instances_request request = place_ask(INSTANCES_REMOVE, gpu, place);
	struct instances_reply reply;

	return ask(link, &request, &reply);
}
