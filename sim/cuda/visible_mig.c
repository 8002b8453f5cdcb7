#include "cuda/visible_mig.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

bool mig_visible_first(uint32_t gpu, struct mig_device *ret)
{
	struct mig_device devices[MIG_DEVICES_MAX];

	if (mig_client_devices(driver.client, gpu, devices) <= 0)
		return false;
	*ret = devices[0];
	return true;
}

static bool is_named(uint32_t gpu, const struct mig_device *device, const char *word)
{
	char older[96];

	snprintf(older, sizeof(older), "MIG-%s/%u/%u", driver.host->gpu[gpu].uuid_text,
		 wire_device_gi(device->id), wire_device_ci(device->id));
	return !strncasecmp(device->uuid, word, strlen(word)) || !strcasecmp(older, word);
}

bool mig_visible_named(const char *word, struct mig_device *ret)
{
	int found = 0;

	if (strlen(word) <= strlen("MIG-"))
		return false;
	for (uint32_t gpu = 0; gpu < driver.host->gpu_count; gpu++) {
		struct mig_device devices[MIG_DEVICES_MAX];
		int n = mig_client_devices(driver.client, gpu, devices);

		for (int i = 0; i < n; i++) {
			if (!is_named(gpu, &devices[i], word))
				continue;
			*ret = devices[i];
			found++;
		}
	}
	return found == 1;
}
