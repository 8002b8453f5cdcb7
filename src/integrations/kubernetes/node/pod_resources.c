#include "integrations/kubernetes/node/pod_resources.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "integrations/kubernetes/claim/reserve.h"
#include "integrations/kubernetes/grpc/grpc_client.h"
#include "integrations/kubernetes/object/device.h"
#include "messages.pb-c.h"

#define LIST "/v1.PodResourcesLister/List"
#define TIMEOUT_MS 3000L

/* NVIDIA's device plugin names a GPU by its UUID, and a share of its time-slicing by UUID::NUMBER.
 */
static bool is_of(const char *device, const char *uuid)
{
	size_t length = strlen(uuid);

	return !strncmp(device, uuid, length) &&
	       (!device[length] || !strncmp(device + length, "::", 2));
}

static void container_mark(const Kubelet__ContainerResources *container, struct device_gpu *gpus,
			   size_t count)
{
	for (size_t i = 0; i < container->n_devices; i++)
		for (size_t k = 0; k < container->devices[i]->n_device_ids; k++)
			for (size_t g = 0; g < count; g++)
				gpus[g].given_away |=
					is_of(container->devices[i]->device_ids[k], gpus[g].uuid);
}

int pod_resources_mark(const char *socket, const struct reserve *reserve, struct device_gpu *gpus,
		       size_t count, struct error *err)
{
	uint8_t *data = NULL;
	size_t size = 0;

	if (access(socket, F_OK) < 0)
		return 0;
	int rc = grpc_ask(socket, LIST, TIMEOUT_MS, &data, &size, err);
	if (rc < 0)
		return rc;
	Kubelet__PodResourcesList *list = kubelet__pod_resources_list__unpack(NULL, size, data);
	free(data);
	if (!list)
		return error_set(err, EXIT_CODE_FAILED, "%.200s sends no list of pods", socket);
	for (size_t i = 0; i < list->n_pods; i++) {
		const Kubelet__PodResources *pod = list->pods[i];

		if (reserve_is_pod(reserve, pod->namespace_, pod->name))
			continue;
		for (size_t k = 0; k < pod->n_containers; k++)
			container_mark(pod->containers[k], gpus, count);
	}
	kubelet__pod_resources_list__free_unpacked(list, NULL);
	return 0;
}
