#include "daemon/probe.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/context.h"
#include "base/error.h"
#include "daemon/log.h"
#include "daemon/pool.h"
#include "daemon/store.h"

static void probe_next(struct probe *probe);

/* A cost holds for all GPUs of the model; so does a failure (0). */
static void cost_set(struct probe *probe, const char *model, uint64_t bytes)
{
	for (uint32_t i = 0; i < probe->pool->count; i++) {
		struct pool_gpu *gpu = &probe->pool->gpu[i];

		if (strcmp(gpu->info.name, model) != 0)
			continue;
		gpu->context_bytes = bytes;
		gpu->context_tried = true;
	}
}

static void finish(struct probe *probe)
{
	const struct pool_gpu *gpu = &probe->pool->gpu[probe->gpu];
	uint64_t bytes = strtoull(probe->text, NULL, 10);

	probe->ended_ns = now_monotonic_ns();
	cost_set(probe, gpu->info.name, bytes);
	if (bytes) {
		(void)store_context_put(probe->store, gpu->info.name,
					gpus_driver_version(probe->pool->gpus), bytes);
		log_event(LOG_INFO, "context.learned model=\"%s\" bytes=%" PRIu64, gpu->info.name,
			  bytes);
	} else {
		log_event(LOG_WARNING, "context.unknown model=\"%s\"", gpu->info.name);
	}
	probe->gpu++;
	if (!probe->stopped)
		probe_next(probe);
}

static void on_closed(uv_handle_t *handle)
{
	struct probe *probe = handle->data;

	if (--probe->open_handles == 0)
		finish(probe);
}

static void close_once(uv_handle_t *handle)
{
	if (!uv_is_closing(handle))
		uv_close(handle, on_closed);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
	struct probe *probe = handle->data;

	*buf = uv_buf_init(probe->text + probe->text_length,
			   (unsigned)(sizeof(probe->text) - 1 - probe->text_length));
}

static void on_output(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
	struct probe *probe = stream->data;

	if (n < 0)
		close_once((uv_handle_t *)stream);
	else
		probe->text_length += (size_t)n;
	probe->text[probe->text_length] = '\0';
}

static void on_exit_status(uv_process_t *process, int64_t status, int signal)
{
	struct probe *probe = process->data;

	if (status || signal)
		log_event(LOG_WARNING, "context.probe_failed status=%d signal=%d", (int)status,
			  signal);
	uv_timer_stop(&probe->timer);
	close_once((uv_handle_t *)&probe->timer);
	close_once((uv_handle_t *)process);
}

static void on_timeout(uv_timer_t *timer)
{
	struct probe *probe = timer->data;

	uv_process_kill(&probe->process, SIGKILL);
}

static void probe_spawn(struct probe *probe, char *uuid_text)
{
	char *args[] = {"carved", "--probe-context", uuid_text, NULL};
	uv_stdio_container_t stdio[3] = {
		{.flags = UV_IGNORE},
		{.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE,
		 .data.stream = (uv_stream_t *)&probe->output},
		{.flags = UV_INHERIT_FD, .data.fd = 2},
	};
	uv_process_options_t options = {
		.file = "/proc/self/exe",
		.args = args,
		.stdio = stdio,
		.stdio_count = 3,
		.exit_cb = on_exit_status,
	};

	probe->text_length = 0;
	probe->text[0] = '\0';
	probe->open_handles = 3;
	uv_pipe_init(probe->loop, &probe->output, 0);
	uv_timer_init(probe->loop, &probe->timer);
	probe->output.data = probe->timer.data = probe->process.data = probe;
	int rc = uv_spawn(probe->loop, &probe->process, &options);
	if (rc < 0) {
		log_event(LOG_ERROR, "context.probe_failed error=\"%s\"", uv_strerror(rc));
		close_once((uv_handle_t *)&probe->output);
		close_once((uv_handle_t *)&probe->timer);
		close_once((uv_handle_t *)&probe->process);
		return;
	}
	probe->pid = probe->process.pid;
	uv_timer_start(&probe->timer, on_timeout, PROBE_TIMEOUT_MS, 0);
	uv_read_start((uv_stream_t *)&probe->output, on_alloc, on_output);
}

static void probe_next(struct probe *probe)
{
	struct pool *pool = probe->pool;
	const char *driver = pool->gpus ? gpus_driver_version(pool->gpus) : "";

	for (; probe->gpu < pool->count; probe->gpu++) {
		struct pool_gpu *gpu = &pool->gpu[probe->gpu];
		uint64_t bytes;

		/* Nothing can be made on a GPU in MIG mode; another daemon's GPU is its business.
		 */
		if (gpu->context_tried || gpu->claim_fd < 0 || gpu->info.mig)
			continue;
		if (store_context_get(probe->store, gpu->info.name, driver, &bytes) == 0) {
			cost_set(probe, gpu->info.name, bytes);
			continue;
		}
		probe_spawn(probe, gpu->info.uuid_text);
		return;
	}
	probe->running = false;
	probe->on_done(probe->arg);
}

void probe_start(struct probe *probe, uv_loop_t *loop, struct pool *pool, struct store *store,
		 probe_cb on_done, void *arg)
{
	probe->loop = loop;
	probe->pool = pool;
	probe->store = store;
	probe->gpu = 0;
	probe->running = true;
	probe->on_done = on_done;
	probe->arg = arg;
	probe_next(probe);
}

void probe_stop(struct probe *probe)
{
	if (!probe->running)
		return;
	probe->stopped = true;
	if (probe->open_handles && uv_is_active((uv_handle_t *)&probe->process))
		uv_process_kill(&probe->process, SIGKILL);
}

bool probe_lingers(const struct probe *probe)
{
	const struct pool *pool = probe->pool;

	if (!probe->pid || now_monotonic_ns() - probe->ended_ns >= PROBE_LINGER_NS)
		return false;
	for (uint32_t i = 0; i < pool->count; i++)
		if (gpu_sample_process_bytes(&pool->gpu[i].sample, probe->pid))
			return true;
	return false;
}

int probe_main(const char *uuid_text)
{
	uint64_t bytes;
	int rc = context_measure(uuid_text, &bytes);

	if (rc < 0) {
		log_event(LOG_WARNING, "context.measure error=\"%s\"", strerrordesc_np(-rc));
		return EXIT_CODE_FAILED;
	}
	printf("%" PRIu64 "\n", bytes);
	return EXIT_CODE_OK;
}
