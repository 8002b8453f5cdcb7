/* The settings of a door, its listening socket, and the files that may change while it runs.
 * The configuration is read again on SIGHUP. Certificates and the token are looked at each minute,
 * too, as renewals write them anew. Where a new file is wrong, the old settings hold. */
#include "integrations/door/door.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "base/trust.h"
#include "daemon/host/log.h"
#include "integrations/door/tls.h"
#include "integrations/door/visitor.h"

#define TOKEN_LEAST 16u
#define BACKLOG 64
/* As carved has it: a longer file is refused. */
#define CONFIG_SIZE_MAX 65536u
/* New connections in one round of the loop. */
#define ACCEPTS_MAX 16

/* ---- files --------------------------------------------------------------------------------- */

/* The first line. A token that can be guessed is none. */
static int token_read(const char *key, const char *path, char token[static DOOR_TOKEN_MAX],
		      size_t *ret_size, struct error *err)
{
	char text[DOOR_TOKEN_MAX + 2];
	ssize_t size = file_read(path, text, sizeof(text));

	if (size < 0)
		return error_set(err, EXIT_CODE_USAGE, "%s.token_file: %.200s: %s", key, path,
				 strerrordesc_np((int)-size));
	size_t length = strcspn(text, "\r\n");
	if (length < TOKEN_LEAST || length >= DOOR_TOKEN_MAX)
		return error_set(err, EXIT_CODE_USAGE,
				 "%s.token_file: %.200s: its first line has %zu characters, "
				 "and takes %u to %u",
				 key, path, length, TOKEN_LEAST, DOOR_TOKEN_MAX - 1);
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

static int config_take(const struct door *door, struct door_config *ret, struct error *err)
{
	const char *path = door->config_path;
	struct error inner = {0};
	json_error_t where;
	cleanup_free char *text = malloc(CONFIG_SIZE_MAX);
	ssize_t size = text ? file_read(path, text, CONFIG_SIZE_MAX) : -ENOMEM;
	int rc = 0;

	*ret = (struct door_config){0};
	if (size < 0)
		return config_unread(path, (int)-size, err);
	json_t *root = json_loadb(text, (size_t)size, JSON_REJECT_DUPLICATES, &where);
	const json_t *value = json_object_get(root, door->kind->key);
	if (!root)
		return error_set(err, EXIT_CODE_USAGE, "%.200s: line %d: %.128s", path, where.line,
				 where.text);
	if (value && door->kind->config_read(value, ret, &inner) < 0)
		rc = error_set(err, EXIT_CODE_USAGE, "%.128s: %.300s", path, inner.message);
	json_decref(root);
	return rc;
}

/* Changes with each of the files. */
static int64_t files_changed(const struct door_config *config)
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

int door_load(struct door *door, struct error *err)
{
	struct door_config config;
	char token[DOOR_TOKEN_MAX] = "";
	size_t token_size = 0;
	struct tls *tls = NULL;
	int rc = config_take(door, &config, err);

	if (rc == 0 && config.token_file[0])
		rc = token_read(door->kind->key, config.token_file, token, &token_size, err);
	if (rc == 0 && config.cert[0])
		rc = tls_new(&config, door->kind->key, &tls, err);
	if (rc < 0)
		return rc;
	tls_free(door->tls);
	door->tls = tls;
	door->config = config;
	memcpy(door->token, token, sizeof(token));
	door->token_size = token_size;
	door->files_changed = files_changed(&config);
	return 0;
}

/* ---- listening ----------------------------------------------------------------------------- */

static void on_arrival(uv_poll_t *poll, int status, int events)
{
	struct door *door = poll->data;

	for (unsigned i = 0; i < ACCEPTS_MAX; i++) {
		struct sockaddr_storage address = {0};
		socklen_t size = sizeof(address);
		int fd = accept4(door->listen_fd, (struct sockaddr *)&address, &size,
				 SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0)
			return;
		visitor_open(door, fd, &address);
	}
}

static int listen_begin(struct door *door, struct error *err)
{
	struct sockaddr_storage address;
	socklen_t size;
	int yes = 1, rc = door_address(door->config.listen, &address, &size);

	if (rc < 0)
		return error_set(err, EXIT_CODE_USAGE, "%s.listen: %s", door->kind->key,
				 door->config.listen);
	int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	/* "[::]:9400" is IPv4's, too, as other servers have it. */
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) < 0 ||
	    bind(fd, (struct sockaddr *)&address, size) < 0 || listen(fd, BACKLOG) < 0) {
		rc = error_set(err, EXIT_CODE_FAILED, "%s.listen: %s: %s", door->kind->key,
			       door->config.listen, strerrordesc_np(errno));
		close_fd(&fd);
		return rc;
	}
	door->listen_fd = fd;
	uv_poll_init(&door->loop, &door->listener, fd);
	door->listener.data = door;
	uv_poll_start(&door->listener, UV_READABLE, on_arrival);
	return 0;
}

/* ---- while it runs ------------------------------------------------------------------------- */

static void stop(struct door *door)
{
	if (door->stopping)
		return;
	door->stopping = true;
	visitors_close(door);
	door->kind->stop(door);
	uv_poll_stop(&door->listener);
	uv_close((uv_handle_t *)&door->listener, NULL);
	uv_close((uv_handle_t *)&door->tick, NULL);
	uv_close((uv_handle_t *)&door->on_term, NULL);
	uv_close((uv_handle_t *)&door->on_int, NULL);
	uv_close((uv_handle_t *)&door->on_hup, NULL);
}

/* Readers begin anew, with what holds now. For another address the program does. */
static void reload(struct door *door)
{
	char listen[sizeof(door->config.listen)];
	struct error err = {0};

	memcpy(listen, door->config.listen, sizeof(listen));
	if (door_load(door, &err) < 0) {
		log_event(LOG_ERROR, "%s.config_refused error=\"%s\"", door->kind->key,
			  err.message);
		door->files_changed = files_changed(&door->config);
		return;
	}
	visitors_close(door);
	log_event(LOG_INFO, "%s.config_read path=%s", door->kind->key, door->config_path);
	if (strcmp(listen, door->config.listen) != 0) {
		log_event(LOG_INFO, "%s.begins_anew listen=%s", door->kind->key,
			  door->config.listen);
		door->begins_anew = true;
		stop(door);
	}
}

static void on_tick(uv_timer_t *timer)
{
	struct door *door = timer->data;
	uint64_t now = now_monotonic_ns();

	visitors_tick(door);
	door->kind->tick(door);
	if (now - door->looked_ns < 60000000000ull)
		return;
	door->looked_ns = now;
	if (files_changed(&door->config) != door->files_changed)
		reload(door);
}

static void on_signal(uv_signal_t *handle, int number)
{
	stop(handle->data);
}

static void on_reload(uv_signal_t *handle, int number)
{
	reload(handle->data);
}

int door_run(struct door *door, struct error *err)
{
	int rc = door->kind->start(door);

	if (rc < 0)
		return error_set(err, EXIT_CODE_FAILED, "%s", strerrordesc_np(-rc));
	uv_loop_init(&door->loop);
	rc = listen_begin(door, err);
	if (rc < 0)
		return rc;
	door->looked_ns = now_monotonic_ns();
	uv_timer_init(&door->loop, &door->tick);
	uv_signal_init(&door->loop, &door->on_term);
	uv_signal_init(&door->loop, &door->on_int);
	uv_signal_init(&door->loop, &door->on_hup);
	door->tick.data = door->on_term.data = door->on_int.data = door->on_hup.data = door;
	uv_timer_start(&door->tick, on_tick, 1000, 1000);
	uv_signal_start(&door->on_term, on_signal, SIGTERM);
	uv_signal_start(&door->on_int, on_signal, SIGINT);
	uv_signal_start(&door->on_hup, on_reload, SIGHUP);
	log_event(LOG_INFO, "%s.listening address=%s tls=%s proof=%s socket=%s", door->kind->key,
		  door->config.listen, door->tls ? "yes" : "no",
		  door->config.client_ca[0] || door->config.token_file[0] ? "yes" : "no",
		  door->socket);
	uv_run(&door->loop, UV_RUN_DEFAULT);
	door->kind->free(door);
	tls_free(door->tls);
	close_fd(&door->listen_fd);
	uv_loop_close(&door->loop);
	return door->begins_anew;
}

int door_connect(const struct door *door)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	uid_t uid;

	if (strlen(door->socket) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	memcpy(address.sun_path, door->socket, strlen(door->socket) + 1);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	int rc = connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0
			 ? -errno
			 : server_check(fd, door->socket, 0, &uid);
	if (rc < 0)
		close_fd(&fd);
	return rc < 0 ? rc : fd;
}
