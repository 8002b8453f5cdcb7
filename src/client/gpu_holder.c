#include "client/gpu_holder.h"

#include <inttypes.h>
#include <stdio.h>

#include "client/sessions.h"

enum holder { HOLDER_USERS, HOLDER_SYSTEM, HOLDER_SYSTEM_DOWN };

static enum holder holder_kind(const json_t *holder)
{
	if (!json_is_true(json_object_get(holder, "system")))
		return HOLDER_USERS;
	return json_is_integer(json_object_get(holder, "pid")) ? HOLDER_SYSTEM : HOLDER_SYSTEM_DOWN;
}

const char *gpu_holder_text(const json_t *holder, char buf[static GPU_HOLDER_SIZE])
{
	static const char *const kinds[] = {
		[HOLDER_USERS] = "held by another daemon",
		[HOLDER_SYSTEM] = "the system daemon's",
		[HOLDER_SYSTEM_DOWN] = "the system daemon's, which does not run",
	};
	const char *kind = kinds[holder_kind(holder)];

	if (json_is_integer(json_object_get(holder, "pid")))
		snprintf(buf, GPU_HOLDER_SIZE, "%s (process %" PRIu64 " of %.64s)", kind,
			 session_number(holder, "pid"), session_text_or_dash(holder, "user"));
	else
		snprintf(buf, GPU_HOLDER_SIZE, "%s", kind);
	return buf;
}

const char *gpu_holder_advice(const json_t *holder)
{
	static const char *const advice[] = {
		[HOLDER_USERS] = "use that one with --host, or end it: a GPU has one daemon",
		[HOLDER_SYSTEM] =
			"leave out --host, CARVE_HOST and CARVE_RUNTIME_DIR to use that one",
		[HOLDER_SYSTEM_DOWN] =
			"as root: systemctl start carved.service; journalctl -u carved "
			"says why it ended; without systemd: carved --system",
	};

	return advice[holder_kind(holder)];
}
