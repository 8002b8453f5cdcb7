#include "daemon/host/devices.h"

#include <string.h>

#include "base/file.h"

/* Some 1 KiB on most hosts. */
#define TEXT_SIZE 16384

unsigned devices_loaded(void)
{
	char text[TEXT_SIZE], *rest = NULL;
	unsigned loaded = 0;

	if (file_read("/proc/devices", text, sizeof(text)) <= 0)
		return 0;
	/* " 195 nvidia" */
	for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		const char *name = strrchr(line, ' ');

		if (!name || strncmp(name + 1, "nvidia", strlen("nvidia")) != 0)
			continue;
		loaded |= strcmp(name + 1, "nvidia-uvm") ? DEVICE_GPUS : DEVICE_UVM;
	}
	return loaded;
}
