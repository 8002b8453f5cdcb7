#include "proto/warden_devices.h"

#include "base/device_files.h"

bool warden_device_fits(const void *request)
{
	const struct warden_device *r = request;

	return r->device < DEVICE_FILES_END && r->uid && r->uid != UINT32_MAX && r->opens <= 1 &&
	       !r->reserved;
}
