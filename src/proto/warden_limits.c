#include "proto/warden_limits.h"

#include <string.h>

#include "proto/warden.h"

/* More GPUs than any host has. */
#define GPU_MOST 256u

bool warden_limit_fits(const void *request)
{
	const struct warden_limit *r = request;

	return r->cgroup && r->gpu < GPU_MOST && !r->reserved;
}

static bool is_session(const char id[static LIMITS_SESSION_SIZE])
{
	size_t length = strnlen(id, LIMITS_SESSION_SIZE);

	if (length < 3 || length == LIMITS_SESSION_SIZE || id[0] != 's' || id[1] != '-')
		return false;
	for (size_t i = 2; i < LIMITS_SESSION_SIZE; i++) {
		bool digit = id[i] >= '0' && id[i] <= '9';
		bool letter = (id[i] >= 'a' && id[i] <= 'z') || (id[i] >= 'A' && id[i] <= 'Z');

		if (i < length ? !digit && !letter : id[i] != '\0')
			return false;
	}
	return true;
}

bool warden_limit_entry_fits(const void *request)
{
	const struct warden_limit_entry *r = request;

	return warden_names_process(r->pid, r->birth) && !r->reserved && is_session(r->session);
}
