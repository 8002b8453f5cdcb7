/* The settings of carve-metrics, its listening socket, and the files that may change while it runs.
 * The configuration is read again on SIGHUP. Certificates and the token are looked at each minute,
 * too, as renewals write them anew. Where a new file is wrong, the old settings hold. */
#include "integrations/metrics/exporter.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "daemon/host/log.h"
#include "integrations/metrics/reader.h"
#include "integrations/metrics/tls.h"
#include "integrations/metrics/upstream.h"

#define TOKEN_LEAST 16u
#define BACKLOG 64
/* As carved has it: a longer file is refused. */
#define CONFIG_SIZE_MAX 65536u
/* New connections in one round of the loop. */
#define ACCEPTS_MAX 16

/* ---- files --------------------------------------------------------------------------------- */

/* The first line. A token that can be guessed is none. */
static int token_read(const char *path, char token[static TOKEN_MAX], size_t *ret_size,
		      struct error *err)
{
	char text[TOKEN_MAX + 2];
	ssize_t size = file_read(path, text, sizeof(text));

	if (size < 0)
		return error_set(err, EXIT_CODE_USAGE, "metrics.token_file: %.200s: %s", path,
				 strerrordesc_np((int)-size));
	size_t length = strcspn(text, "\r\n");
	if (length < TOKEN_LEAST || length >= TOKEN_MAX)
		return error_set(err, EXIT_CODE_USAGE,
				 "metrics.token_file: %.200s: its first line has %zu characters, "
				 "and takes %u to %u",
				 path, length, TOKEN_LEAST, TOKEN_MAX - 1);
	memcpy(token, text, length);
	*ret_size = length;
	return 0;
}

static int config_unread(const char *path, int error, struct error *err)
{
	if (error == ENOENT)
		return error_set(err, EXIT_CODE_USAGE,
				 "there is no file %.200s; write it, or name another with --config "
				 "FILE",
				 path);
	return error_set(err, EXIT_CODE_USAGE, "%.200s: %s", path, strerrordesc_np(error));
}

static int config_take(const char *path, struct metrics_config *ret, struct error *err)
{
	struct error inner = {0};
	json_error_t where;
	cleanup_free char *text = malloc(CONFIG_SIZE_MAX);
	ssize_t size = text ? file_read(path, text, CONFIG_SIZE_MAX) : -ENOMEM;
	int rc = 0;

	*ret = metrics_config_default;
	if (size < 0)
		return config_unread(path, (int)-size, err);
	json_t *root = json_loadb(text, (size_t)size, JSON_REJECT_DUPLICATES, &where);
	const json_t *metrics = json_object_get(root, "metrics");
	if (!root)
		return error_set(err, EXIT_CODE_USAGE, "%.200s: line %d: %.128s", path, where.line,
				 where.text);
	if (metrics && metrics_config_read(metrics, ret, &inner) < 0)
		rc = error_set(err, EXIT_CODE_USAGE, "%.128s: %.300s", path, inner.message);
	json_decref(root);
	return rc;
}

/* Changes with each of the files. */
static int64_t files_changed(const struct metrics_config *config)
{
	const char *const paths[] = {config->cert, config->key, config->client_ca,
				     config->token_file};
	int64_t sum = 0;
	struct stat st;

	for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
		if (*paths[i] && stat(paths[i], &st) == 0)
			sum = sum * 31 + st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec +
			      (int64_t)st.st_ino;
	return sum;
}

int exporter_load(struct exporter *e, struct error *err)
{
	struct metrics_config config;
	char token[TOKEN_MAX] = "";
	size_t token_size = 0;
	struct tls *tls = NULL;
	int rc = config_take(e->config_path, &config, err);

	if (rc == 0 && config.token_file[0])
		rc = token_read(config.token_file, token, &token_size, err);
	if (rc == 0 && config.cert[0])
		rc = tls_new(&config, &tls, err);
	if (rc < 0)
		return rc;
	tls_free(e->tls);
	e->tls = tls;
	e->config = config;
	memcpy(e->token, token, sizeof(token));
	e->token_size = token_size;
	e->files_changed = files_changed(&config);
	return 0;
}

/* ---- listening ----------------------------------------------------------------------------- */

static void on_arrival(uv_poll_t *poll, int status, int events)
{
	struct exporter *e = poll->data;

	for (unsigned i = 0; i < ACCEPTS_MAX; i++) {
		int fd = accept4(e->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0)
			return;
		reader_open(e, fd);
	}
}

static int listen_begin(struct exporter *e, struct error *err)
{
	struct sockaddr_storage address;
	socklen_t size;
	int yes = 1, rc = metrics_address(e->config.listen, &address, &size);

	if (rc < 0)
		return error_set(err, EXIT_CODE_USAGE, "metrics.listen: %s", e->config.listen);
	int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	/* "[::]:9400" is IPv4's, too, as other servers have it. */
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) < 0 ||
	    bind(fd, (struct sockaddr *)&address, size) < 0 || listen(fd, BACKLOG) < 0) {
		rc = error_set(err, EXIT_CODE_FAILED, "metrics.listen: %s: %s", e->config.listen,
			       strerrordesc_np(errno));
		close_fd(&fd);
		return rc;
	}
	e->listen_fd = fd;
	uv_poll_init(&e->loop, &e->listener, fd);
	e->listener.data = e;
	uv_poll_start(&e->listener, UV_READABLE, on_arrival);
	return 0;
}

/* ---- while it runs ------------------------------------------------------------------------- */

static void stop(struct exporter *e)
{
	if (e->stopping)
		return;
	e->stopping = true;
	readers_close(e);
	upstream_stop(e->upstream);
	uv_poll_stop(&e->listener);
	uv_close((uv_handle_t *)&e->listener, NULL);
	uv_close((uv_handle_t *)&e->tick, NULL);
	uv_close((uv_handle_t *)&e->on_term, NULL);
	uv_close((uv_handle_t *)&e->on_int, NULL);
	uv_close((uv_handle_t *)&e->on_hup, NULL);
}

/* Readers begin anew, with what holds now. For another address the program does. */
static void reload(struct exporter *e)
{
	char listen[sizeof(e->config.listen)];
	struct error err = {0};

	memcpy(listen, e->config.listen, sizeof(listen));
	if (exporter_load(e, &err) < 0) {
		log_event(LOG_ERROR, "metrics.config_refused error=\"%s\"", err.message);
		e->files_changed = files_changed(&e->config);
		return;
	}
	readers_close(e);
	log_event(LOG_INFO, "metrics.config_read path=%s", e->config_path);
	if (strcmp(listen, e->config.listen) != 0) {
		log_event(LOG_INFO, "metrics.begins_anew listen=%s", e->config.listen);
		e->begins_anew = true;
		stop(e);
	}
}

static void on_tick(uv_timer_t *timer)
{
	struct exporter *e = timer->data;
	uint64_t now = now_monotonic_ns();

	readers_tick(e);
	upstream_tick(e->upstream);
	if (now - e->looked_ns < 60000000000ull)
		return;
	e->looked_ns = now;
	if (files_changed(&e->config) != e->files_changed)
		reload(e);
}

static void on_signal(uv_signal_t *handle, int number)
{
	stop(handle->data);
}

static void on_reload(uv_signal_t *handle, int number)
{
	reload(handle->data);
}

int exporter_run(struct exporter *e, struct error *err)
{
	e->upstream = upstream_new(e);
	if (!e->upstream)
		return error_set(err, EXIT_CODE_FAILED, "out of memory");
	uv_loop_init(&e->loop);
	int rc = listen_begin(e, err);
	if (rc < 0)
		return rc;
	e->looked_ns = now_monotonic_ns();
	uv_timer_init(&e->loop, &e->tick);
	uv_signal_init(&e->loop, &e->on_term);
	uv_signal_init(&e->loop, &e->on_int);
	uv_signal_init(&e->loop, &e->on_hup);
	e->tick.data = e->on_term.data = e->on_int.data = e->on_hup.data = e;
	uv_timer_start(&e->tick, on_tick, 1000, 1000);
	uv_signal_start(&e->on_term, on_signal, SIGTERM);
	uv_signal_start(&e->on_int, on_signal, SIGINT);
	uv_signal_start(&e->on_hup, on_reload, SIGHUP);
	log_event(LOG_INFO, "metrics.listening address=%s tls=%s proof=%s socket=%s",
		  e->config.listen, e->tls ? "yes" : "no",
		  metrics_config_proves(&e->config) ? "yes" : "no", e->socket);
	uv_run(&e->loop, UV_RUN_DEFAULT);
	upstream_free(e->upstream);
	tls_free(e->tls);
	close_fd(&e->listen_fd);
	uv_loop_close(&e->loop);
	return e->begins_anew;
}
