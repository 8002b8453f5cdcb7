#include "daemon/host/child.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "base/file.h"
#include "base/macros.h"

static void on_closed(uv_handle_t *handle)
{
	struct child *c = handle->data;

	if (--c->open_handles == 0)
		c->on_end(c);
}

static void close_once(void *handle)
{
	if (!uv_is_closing(handle))
		uv_close(handle, on_closed);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
	struct child *c = handle->data;
	static char rest[1024]; /* bytes beyond the bound are read all the same */
	size_t room = sizeof(c->text) - 1 - c->length;

	*buf = room ? uv_buf_init(c->text + c->length, (unsigned)room)
		    : uv_buf_init(rest, sizeof(rest));
}

static void on_output(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
	struct child *c = stream->data;

	if (n < 0)
		close_once(stream);
	else if (buf->base >= c->text && buf->base < c->text + sizeof(c->text))
		c->length += (size_t)n;
	c->text[c->length] = '\0';
}

static void on_exit_status(uv_process_t *process, int64_t status, int signal)
{
	struct child *c = process->data;

	if (c->status == 0)
		c->status = signal ? signal : status;
	uv_timer_stop(&c->timer);
	close_once(&c->timer);
	close_once(process);
}

static void on_timeout(uv_timer_t *timer)
{
	struct child *c = timer->data;

	c->status = CHILD_TIMEOUT;
	child_kill(c);
	close_once(&c->output); /* a child of its own may hold the other end */
}

int child_start(struct child *c, uv_loop_t *loop, const char *program, char **argv,
		unsigned timeout_ms, child_cb on_end)
{
	uv_stdio_container_t stdio[3] = {
		{.flags = UV_IGNORE},
		{.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE,
		 .data.stream = (uv_stream_t *)&c->output},
		{.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO},
	};
	uv_process_options_t options = {
		.file = program,
		.args = argv,
		.stdio = stdio,
		.stdio_count = 3,
		.exit_cb = on_exit_status,
	};

	c->on_end = on_end;
	c->text[0] = '\0';
	c->length = 0;
	c->status = 0;
	c->pid = 0;
	c->open_handles = 3;
	uv_pipe_init(loop, &c->output, 0);
	uv_timer_init(loop, &c->timer);
	c->output.data = c->timer.data = c->process.data = c;
	int rc = uv_spawn(loop, &c->process, &options);
	if (rc < 0) {
		c->status = 1;
		snprintf(c->text, sizeof(c->text), "%s", uv_strerror(rc));
		close_once(&c->output);
		close_once(&c->timer);
		close_once(&c->process);
		return rc;
	}
	c->pid = c->process.pid;
	uv_timer_start(&c->timer, on_timeout, timeout_ms, 0);
	uv_read_start((uv_stream_t *)&c->output, on_alloc, on_output);
	return 0;
}

void child_kill(struct child *c)
{
	if (c->open_handles && uv_is_active((uv_handle_t *)&c->process))
		uv_process_kill(&c->process, SIGKILL);
}

int child_program(const char *name, char ret[static PATH_MAX])
{
	static const char *const places[] = {"", CARVE_LIB_FROM_BIN "/"};
	char dir[PATH_MAX];
	int rc = executable_dir(dir, sizeof(dir));

	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(places); i++)
		if (snprintf(ret, PATH_MAX, "%s/%s%s", dir, places[i], name) < PATH_MAX &&
		    access(ret, X_OK) == 0)
			return 0;
	return rc < 0 ? rc : -ENOENT;
}
