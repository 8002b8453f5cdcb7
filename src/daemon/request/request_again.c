#include "daemon/request/request_again.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "base/units.h"

/* A number with the largest unit of which it is a whole number. */
struct unit {
	const char *name;
	uint64_t size;
};

static const struct unit sizes[] = {{"GiB", 1ull << 30}, {"MiB", 1ull << 20}, {"B", 1}};
static const struct unit times[] = {{"h", 3600000000000ull},
				    {"m", 60000000000ull},
				    {"s", 1000000000ull},
				    {"ms", 1000000ull},
				    {"us", 1000ull}};

__attribute__((format(printf, 2, 3))) static void add(char *buf, const char *format, ...)
{
	size_t used = strlen(buf);
	va_list args;

	va_start(args, format);
	/* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): clang 14 does not follow va_start */
	(void)vsnprintf(buf + used, REQUEST_AGAIN_SIZE - used, format, args);
	va_end(args);
}

static void number_add(char *buf, const char *option, uint64_t number, const struct unit *units,
		       size_t count)
{
	size_t i = 0;

	while (i < count - 1 && number % units[i].size)
		i++;
	add(buf, " %s %" PRIu64 "%s", option, number / units[i].size, units[i].name);
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
		number_add(buf, "--vram", gpu->requested, sizes, ARRAY_SIZE(sizes));
	if (session->kind == PLACE_BYTES && session->compute)
		add(buf, " --gpu-compute %g%%", session->compute * 100.0 / SHARE_ONE);
	if (session->kind != PLACE_WHOLE && session->gpu_count > 1)
		add(buf, " --gpus %" PRIu32, session->gpu_count);
}

const char *request_again(const struct store_session *session, char buf[static REQUEST_AGAIN_SIZE])
{
	snprintf(buf, REQUEST_AGAIN_SIZE, "carve session request");
	if (session->gpu_count)
		size_add(session, buf);
	if (session->timeout_ns)
		number_add(buf, "--session-timeout", session->timeout_ns, times, ARRAY_SIZE(times));
	if (session->name[0])
		add(buf, " --name %s", session->name);
	return buf;
}
