#include "integrations/kubernetes/node/node.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

#include "base/clock.h"
#include "base/error.h"
#include "daemon/host/log.h"
#include "integrations/kubernetes/claim/prepare.h"
#include "integrations/kubernetes/grpc/grpc.h"
#include "integrations/kubernetes/node/kubelet.h"
#include "integrations/kubernetes/node/publish.h"
#include "integrations/kubernetes/node/reservations.h"
#include "integrations/kubernetes/node/watcher.h"
#include "slice/driver_find.h"
#include "slice/places.h"

/* Somebody may clean the kubelet's directories: sockets that are gone are made again. */
#define SOCKETS_MS 5000
/* A carved that starts beside the plugin, as in one pod, answers later than the plugin asks. */
#define CARVED_MS 30000
#define CARVED_PAUSE_NS 200000000L
/* Threads that wait for carved, the API server or a disk get this long to end. */
#define END_MS 900

struct node {
	uv_loop_t loop;
	uv_async_t seen;
	uv_poll_t end;
	uv_timer_t timer;
	struct grpc_server *registration, *dra;
	char registration_socket[PATH_MAX], dra_socket[PATH_MAX];
	char own[PATH_MAX], claims[PATH_MAX], slices[PATH_MAX], pod_resources[PATH_MAX];
	struct api api;
	atomic_bool stop; /* calls to it are not waited for */
	struct carved carved;
	struct prepare prepare;
	struct publish publish;
	struct kubelet kubelet;
	struct reservations *reservations;
};

/* ---- places ------------------------------------------------------------------------------ */

static int directory_make(const char *path, mode_t mode, struct error *err)
{
	if (mkdir(path, mode) == 0 || errno == EEXIST)
		return 0;
	return error_set(err, EXIT_CODE_FAILED, "cannot make %.300s: %s", path,
			 strerrordesc_np(errno));
}

static int places_make(struct node *node, const struct node_options *options, struct error *err)
{
	char plugins[PATH_MAX / 2], registry[PATH_MAX / 2], own[PATH_MAX - 32];
	int rc;

	if (snprintf(plugins, sizeof(plugins), "%s/plugins", options->kubelet_dir) >=
		    (int)sizeof(plugins) ||
	    snprintf(registry, sizeof(registry), "%s/plugins_registry", options->kubelet_dir) >=
		    (int)sizeof(registry))
		return error_set(err, EXIT_CODE_USAGE, "--kubelet-dir: the path is too long");
	snprintf(own, sizeof(own), "%s/%s", plugins, options->driver);
	snprintf(node->registration_socket, PATH_MAX, "%s/%s-reg.sock", registry, options->driver);
	snprintf(node->dra_socket, PATH_MAX, "%s/dra.sock", own);
	snprintf(node->own, PATH_MAX, "%s", own);
	snprintf(node->claims, PATH_MAX, "%s/claims", own);
	snprintf(node->slices, PATH_MAX, "%s/slices", own);
	snprintf(node->pod_resources, PATH_MAX, "%.4000s/pod-resources/kubelet.sock",
		 options->kubelet_dir);
	if ((rc = directory_make(plugins, 0750, err)) < 0 ||
	    (rc = directory_make(registry, 0750, err)) < 0 ||
	    (rc = directory_make(own, 0750, err)) < 0 ||
	    (rc = directory_make(node->claims, 0700, err)) < 0 ||
	    (rc = directory_make(node->slices, 0755, err)) < 0)
		return rc;
	return directory_make(options->cdi_dir, 0755, err);
}

static int path_take(char to[static PATH_MAX], const char *option, const char *dir,
		     const char *name, struct error *err)
{
	return snprintf(to, PATH_MAX, "%s/%s", dir, name) < PATH_MAX
		       ? 0
		       : error_set(err, EXIT_CODE_USAGE, "%s: the path is too long", option);
}

static int front_take(struct cdi_host *host, const char *dir, const struct places *places,
		      struct error *err)
{
	if (!dir) {
		snprintf(host->front_cuda, PATH_MAX, "%s", places->front_cuda);
		snprintf(host->front_nvml, PATH_MAX, "%s", places->front_nvml);
		return 0;
	}
	int rc = path_take(host->front_cuda, "--front-dir", dir, "libcuda.so.1", err);
	return rc < 0 ? rc
		      : path_take(host->front_nvml, "--front-dir", dir, "libnvidia-ml.so.1", err);
}

/* The parts of this host that containers get. */
static int host_find(struct node *node, const struct node_options *options, struct error *err)
{
	struct cdi_host *host = &node->prepare.host;
	struct places places;
	struct driver_libs driver;
	int rc = places_find(&places, err);

	if (rc < 0 || (rc = driver_find(&driver, err)) < 0)
		return rc;
	if ((rc = front_take(host, options->front_dir, &places, err)) < 0 ||
	    (options->hook_dir &&
	     (rc = path_take(host->hook, "--hook-dir", options->hook_dir, "carve-hook", err)) < 0))
		return rc;
	snprintf(host->cuda, sizeof(host->cuda), "%s", driver.cuda);
	snprintf(host->nvml, sizeof(host->nvml), "%s", driver.nvml);
	snprintf(host->attach, sizeof(host->attach), "%s", node->carved.client.attach);
	snprintf(host->socket, sizeof(host->socket), "%s", node->carved.client.socket);
	snprintf(host->slices, sizeof(host->slices), "%s", node->slices);
	host->simulated_host = secure_getenv("SIMGPU_HOST");
	if (driver.cuda[0])
		return 0;
	error_set(err, EXIT_CODE_FAILED, "there is no NVIDIA driver on this node");
	error_hint(err, "carve check says where it looks");
	return -EXIT_CODE_FAILED;
}

/* ---- sockets ----------------------------------------------------------------------------- */

static int socket_keep(struct node *node, struct grpc_server **server, const char *path,
		       const struct grpc_method *methods)
{
	if (*server && access(path, F_OK) == 0)
		return 0;
	grpc_server_stop(*server);
	*server = NULL;
	return grpc_server_start(&node->loop, path, methods, &node->kubelet, server);
}

static int sockets_keep(struct node *node)
{
	int rc = socket_keep(node, &node->dra, node->dra_socket, kubelet_dra);

	/* The kubelet calls the other one as soon as it sees this one. */
	return rc < 0 ? rc
		      : socket_keep(node, &node->registration, node->registration_socket,
				    kubelet_registration);
}

static int socket_error(const struct node *node, int rc, struct error *err)
{
	return error_set(err, EXIT_CODE_FAILED, "cannot listen at %.200s or %.200s: %s",
			 node->dra_socket, node->registration_socket, strerrordesc_np(-rc));
}

/* ---- the end ----------------------------------------------------------------------------- */

static volatile sig_atomic_t serves; /* before that nothing is promised */
static int end_fd;                   /* an eventfd: a signal came; never closed */

/* Not uv_signal_t: a second signal would meet the default action once its handle is closed. */
static void on_signal(int number)
{
	int before = errno;

	if (!serves)
		_exit(EXIT_CODE_OK);
	(void)!write(end_fd, &(uint64_t){1}, sizeof(uint64_t));
	errno = before;
}

/* Threads are left in the middle of what they do: the next plugin takes it up (prepare.h). */
static void on_end_time(int number)
{
	_exit(EXIT_CODE_OK);
}

static void signal_take(int number, void (*handler)(int number))
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};

	sigemptyset(&action.sa_mask);
	sigaction(number, &action, NULL);
}

static int signals_take(struct error *err)
{
	end_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (end_fd < 0)
		return error_set(err, EXIT_CODE_FAILED, "no eventfd: %s", strerrordesc_np(errno));
	signal_take(SIGTERM, on_signal);
	signal_take(SIGINT, on_signal);
	signal_take(SIGALRM, on_end_time);
	return 0;
}

/* From here on the process ends in time, whatever its threads wait for. */
static void end_begin(const struct node *node)
{
	const struct itimerval left = {.it_value.tv_usec = END_MS * 1000L};

	log_event(LOG_INFO, "node.ends node=%s", node->kubelet.node);
	setitimer(ITIMER_REAL, &left, NULL);
}

/* ---- the loop ---------------------------------------------------------------------------- */

static void on_timer(uv_timer_t *timer)
{
	struct node *node = timer->data;
	int rc = sockets_keep(node);

	if (rc < 0)
		log_event(LOG_WARNING, "kubelet.no_socket error=\"%s\"", strerrordesc_np(-rc));
}

static void on_seen(uv_async_t *async)
{
	struct node *node = async->data;

	kubelet_report_health(&node->kubelet);
}

static void seen(void *arg)
{
	struct node *node = arg;

	uv_async_send(&node->seen);
}

static bool goes_on(void *arg)
{
	struct node *node = arg;

	return !node->stop;
}

static void on_end(uv_poll_t *poll, int status, int events)
{
	uv_stop(poll->loop);
}

static void loop_open(struct node *node)
{
	uv_loop_init(&node->loop);
	uv_async_init(&node->loop, &node->seen, on_seen);
	uv_poll_init(&node->loop, &node->end, end_fd);
	uv_timer_init(&node->loop, &node->timer);
	node->seen.data = node->timer.data = node;
	uv_poll_start(&node->end, UV_READABLE, on_end);
	serves = 1;
	uv_timer_start(&node->timer, on_timer, SOCKETS_MS, SOCKETS_MS);
}

static void close_one(uv_handle_t *handle, void *arg)
{
	if (!uv_is_closing(handle))
		uv_close(handle, NULL);
}

/* Calls of the kubelet that are under way come to their end, which may be a failure, as the API
 * server is not waited for. Nobody hears of it, and the kubelet calls again. */
static void loop_close(struct node *node)
{
	uv_walk(&node->loop, close_one, NULL);
	uv_run(&node->loop, UV_RUN_DEFAULT);
	uv_loop_close(&node->loop);
}

static int carved_await(struct node *node, const char *host, struct error *err)
{
	long long until = now_monotonic_ms() + CARVED_MS;
	int rc = carved_open(&node->carved, host, err);

	if (rc < 0 && err->code == EXIT_CODE_UNREACHABLE)
		log_event(LOG_INFO, "carved.awaited error=\"%s\"", err->message);
	while (rc < 0 && err->code == EXIT_CODE_UNREACHABLE && now_monotonic_ms() < until) {
		nanosleep(&(struct timespec){.tv_nsec = CARVED_PAUSE_NS}, NULL);
		*err = (struct error){0};
		rc = carved_open(&node->carved, host, err);
	}
	return rc;
}

static int serve(struct node *node, struct error *err)
{
	int rc = watcher_start(&node->prepare, &node->publish, seen, node, &node->kubelet.watcher);

	if (rc < 0)
		return error_set(err, EXIT_CODE_FAILED, "cannot start a thread: %s",
				 strerrordesc_np(-rc));
	rc = reservations_start(&node->prepare.reserve, node->kubelet.watcher, &node->reservations);
	if (rc < 0)
		log_event(LOG_ERROR, "reservations.not_followed error=\"%s\"",
			  strerrordesc_np(-rc));
	rc = sockets_keep(node);
	if (rc < 0) {
		rc = socket_error(node, rc, err);
	} else {
		log_event(LOG_INFO, "node.serves node=%s driver=%s", node->kubelet.node,
			  node->kubelet.driver);
		uv_run(&node->loop, UV_RUN_DEFAULT);
	}
	node->stop = true;
	if (rc == 0)
		end_begin(node);
	kubelet_close(&node->kubelet);
	grpc_server_stop(node->registration);
	grpc_server_stop(node->dra);
	reservations_stop(node->reservations);
	watcher_stop(node->kubelet.watcher);
	return rc;
}

int node_run(const struct node_options *options, struct error *err)
{
	static struct node node;
	struct reserve reserve = {.api = &node.api,
				  .node = options->node,
				  .namespace = options->reserve_namespace,
				  .image = options->reserve_image,
				  .resource = options->reserve_resource,
				  .label = options->reserve_label,
				  .wanted = prepare_wants,
				  .arg = &node.prepare};
	int rc = signals_take(err);

	if (rc == 0)
		rc = reserve_check(&reserve, err);
	if (rc == 0)
		rc = api_open(&node.api, options->api_url, options->token, options->ca, err);
	if (rc < 0 || (rc = places_make(&node, options, err)) < 0 ||
	    (rc = carved_await(&node, options->host, err)) < 0 ||
	    (rc = host_find(&node, options, err)) < 0)
		return rc;
	node.api.goes_on = goes_on;
	node.api.arg = &node;
	node.prepare.api = node.publish.api = &node.api;
	node.prepare.carved = &node.carved;
	node.prepare.driver = node.publish.driver = node.kubelet.driver = options->driver;
	node.prepare.node = node.publish.node = node.kubelet.node = options->node;
	node.prepare.state = node.own;
	node.prepare.replicas = node.publish.replicas = options->replicas;
	node.prepare.claims = node.claims;
	node.prepare.cdi = options->cdi_dir;
	node.prepare.pod_resources = node.pod_resources;
	node.kubelet.dra_socket = node.dra_socket;
	node.kubelet.prepare = &node.prepare;
	node.prepare.reserve = reserve;
	pthread_mutex_init(&node.prepare.reserve.lock, NULL);
	pthread_mutex_init(&node.prepare.lock, NULL);
	pthread_cond_init(&node.prepare.freed, NULL);
	loop_open(&node);
	kubelet_open(&node.kubelet, &node.loop);
	rc = serve(&node, err);
	loop_close(&node);
	json_free(&node.publish.published);
	api_close(&node.api);
	return rc;
}
