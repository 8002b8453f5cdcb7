#include "daemon/request/request_again.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/units.h"

/* The largest unit of which the size is a whole number. */
static const struct unit {
	const char *name;
	uint64_t size;
} units[] = {{"GiB", 1ull << 30}, {"MiB", 1ull << 20}, {"B", 1}};

__attribute__((format(printf, 2, 3))) static void add(char *buf, const char *format, ...)
{
	size_t used = strlen(buf);
	va_list args;

	va_start(args, format);
	/* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): clang 14 does not follow va_start */
	(void)vsnprintf(buf + used, REQUEST_AGAIN_SIZE - used, format, args);
	va_end(args);
}

static void bytes_add(char *buf, uint64_t bytes)
{
	const struct unit *unit = units;

	while (bytes % unit->size)
		unit++;
	add(buf, " --vram %" PRIu64 "%s", bytes / unit->size, unit->name);
}

static void size_add(const struct store_session *session, char *buf)
{
	const struct store_gpu *gpu = session->gpu;

	if (session->kind == PLACE_WHOLE)
		add(buf, " --gpu %" PRIu32, session->gpu_count);
	else if (session->kind == PLACE_PROFILE)
		add(buf, " --mig-profile %s", gpu->profile);
	else if (session->kind == PLACE_FRACTION)
		add(buf, " --gpu %g", session->compute / (double)SHARE_ONE);
	else
		bytes_add(buf, gpu->requested);
	if (session->kind == PLACE_BYTES && session->compute)
		add(buf, " --gpu-compute %g%%", session->compute * 100.0 / SHARE_ONE);
	if (session->kind != PLACE_WHOLE && session->gpu_count > 1)
		add(buf, " --gpus %" PRIu32, session->gpu_count);
}

const char *request_again(const struct store_session *session, char buf[static REQUEST_AGAIN_SIZE])
{
	char timeout[UNITS_TEXT_SIZE];

	snprintf(buf, REQUEST_AGAIN_SIZE, "carve session request");
	if (session->gpu_count)
		size_add(session, buf);
	if (session->timeout_ns)
		add(buf, " --session-timeout %s",
		    units_format_exact_duration(session->timeout_ns, timeout));
	if (session->name[0])
		add(buf, " --name %s", session->name);
	return buf;
}
