#include "client/http.h"

#include <curl/curl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "client/text.h"
#include "slice/runtime_dir.h"

/* A daemon's largest honest answer (sessions of a big host) is far below it. */
#define ANSWER_MAX (64u << 20)
#define SLOW_AFTER_US 500000
#define SLOW_AGAIN_US 1000000
#define CONNECT_TIMEOUT_MS 5000
/* Whether the daemon is just slow (a driver that wakes a GPU up, a wait for room) or hangs is asked
 * again after each such time: it always has an answer to what its version is. */
#define ALIVE_AFTER_US 4000000
#define ALIVE_TIMEOUT_MS 1500

/* A connection of curl's, whose other end is looked at. */
struct connection {
	const char *path;
	int fd;
	struct error error; /* why it is not used */
};

struct answer {
	char *data;
	size_t size;
};

struct progress {
	CURL *curl;
	const struct http_request *request;
	curl_off_t told_us;  /* when the caller was last told that it takes long; 0: not yet */
	curl_off_t asked_us; /* when it was last asked whether it lives */
};

static size_t answer_append(char *data, size_t unit, size_t count, void *context)
{
	struct answer *answer = context;
	size_t size = unit * count;

	if (size > ANSWER_MAX - answer->size)
		return 0;
	char *grown = realloc(answer->data, answer->size + size);
	if (!grown)
		return 0;
	memcpy(grown + answer->size, data, size);
	answer->data = grown;
	answer->size += size;
	return size;
}

static size_t answer_ignore(char *data, size_t unit, size_t count, void *context)
{
	return unit * count;
}

static curl_socket_t connection_open(void *context, curlsocktype purpose,
				     struct curl_sockaddr *address)
{
	struct connection *connection = context;

	if (runtime_check_place(connection->path, &connection->error) < 0)
		return CURL_SOCKET_BAD;
	connection->fd = socket(address->family, address->socktype | SOCK_CLOEXEC, 0);
	return connection->fd;
}

/* It is connected, and nothing was sent yet. */
static int connection_check(void *context, char *peer_ip, char *own_ip, int peer_port, int own_port)
{
	struct connection *connection = context;
	int rc = runtime_check_server(connection->fd, connection->path, &connection->error);

	return rc < 0 ? CURL_PREREQFUNC_ABORT : CURL_PREREQFUNC_OK;
}

static void connection_use(CURL *curl, struct connection *connection)
{
	curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, connection->path);
	curl_easy_setopt(curl, CURLOPT_OPENSOCKETFUNCTION, connection_open);
	curl_easy_setopt(curl, CURLOPT_OPENSOCKETDATA, connection);
	curl_easy_setopt(curl, CURLOPT_PREREQFUNCTION, connection_check);
	curl_easy_setopt(curl, CURLOPT_PREREQDATA, connection);
	curl_easy_setopt(curl, CURLOPT_PROXY, "");
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_TIMEOUT_MS);
}

static bool daemon_is_alive(const char *socket)
{
	CURL *curl = curl_easy_init();
	CURLcode code = CURLE_FAILED_INIT;
	struct connection connection = {.path = socket};

	if (curl) {
		connection_use(curl, &connection);
		curl_easy_setopt(curl, CURLOPT_URL, "http://carve/v1/version");
		curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)ALIVE_TIMEOUT_MS);
		curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, answer_ignore);
		code = curl_easy_perform(curl);
	}
	curl_easy_cleanup(curl);
	/* One that has ended is known otherwise. */
	return code != CURLE_OPERATION_TIMEDOUT;
}

/* Nonzero gives the call up. */
static int progress_tell(void *context, curl_off_t to_get, curl_off_t got, curl_off_t to_put,
			 curl_off_t put)
{
	struct progress *progress = context;
	curl_off_t elapsed_us = 0;

	curl_easy_getinfo(progress->curl, CURLINFO_TOTAL_TIME_T, &elapsed_us);
	if (progress->request->slow && elapsed_us > SLOW_AFTER_US &&
	    (!progress->told_us || elapsed_us - progress->told_us > SLOW_AGAIN_US)) {
		progress->told_us = elapsed_us;
		progress->request->slow(progress->request->slow_context);
	}
	if (elapsed_us - progress->asked_us < ALIVE_AFTER_US)
		return 0;
	progress->asked_us = elapsed_us;
	return !daemon_is_alive(progress->request->socket);
}

static void free_curl(CURL **curl)
{
	curl_easy_cleanup(*curl);
}

static void free_list(struct curl_slist **list)
{
	curl_slist_free_all(*list);
}

static void request_prepare(CURL *curl, const struct http_request *request, const char *url,
			    struct progress *progress)
{
	curl_easy_setopt(curl, CURLOPT_URL, url);
	curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request->method);
	curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, request->timeout_ms);
	curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
	curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, progress_tell);
	curl_easy_setopt(curl, CURLOPT_XFERINFODATA, progress);
}

static int exchange_error(const struct http_request *request, CURLcode code,
			  const struct connection *connection, enum http_reach *ret_reach,
			  struct error *err)
{
	if (connection->error.code == EXIT_CODE_NOT_PERMITTED) {
		*ret_reach = HTTP_REFUSED;
		*err = connection->error;
		return -EXIT_CODE_NOT_PERMITTED;
	}
	*ret_reach = code == CURLE_COULDNT_CONNECT ? HTTP_NOT_SENT
		     : code == CURLE_OPERATION_TIMEDOUT || code == CURLE_ABORTED_BY_CALLBACK
			     ? HTTP_TIMED_OUT
			     : HTTP_BROKE_OFF;
	if (code == CURLE_COULDNT_CONNECT) {
		error_set(err, EXIT_CODE_UNREACHABLE, "no daemon answers at %s", request->socket);
		error_hint(err, "is carved running there? `carve check` looks");
	} else if (code == CURLE_OPERATION_TIMEDOUT) {
		error_set(err, EXIT_CODE_UNREACHABLE,
			  "the daemon at %s did not answer within %ld s", request->socket,
			  request->timeout_ms / 1000);
	} else if (code == CURLE_ABORTED_BY_CALLBACK) {
		error_set(err, EXIT_CODE_UNREACHABLE, "the daemon (process %d) does not answer",
			  (int)runtime_socket_pid(request->socket));
		error_hint(err, "it hangs or is stopped; its socket is %s", request->socket);
	} else if (code == CURLE_GOT_NOTHING || code == CURLE_RECV_ERROR ||
		   code == CURLE_SEND_ERROR || code == CURLE_PARTIAL_FILE) {
		error_set(err, EXIT_CODE_UNREACHABLE, "the daemon at %s ended while it was asked",
			  request->socket);
		error_hint(err, "try again; its log is carved.log in that directory");
	} else {
		error_set(err, EXIT_CODE_UNREACHABLE,
			  "what answers at %s is no daemon that carve understands",
			  request->socket);
	}
	return -EXIT_CODE_UNREACHABLE;
}

int http_exchange(const struct http_request *request, struct http_answer *ret, struct error *err)
{
	__attribute__((cleanup(free_curl))) CURL *curl = curl_easy_init();
	__attribute__((cleanup(free_list))) struct curl_slist *headers =
		curl_slist_append(NULL, "Content-Type: application/json");
	cleanup_free char *body = request->body ? json_dumps(request->body, JSON_COMPACT) : NULL;
	struct answer answer = {0};
	struct connection connection = {.path = request->socket};
	struct progress progress = {.curl = curl, .request = request};
	char url[512];

	*ret = (struct http_answer){.reach = HTTP_NOT_SENT};
	if (!curl || !headers || (request->body && !body))
		return error_set(err, EXIT_CODE_FAILED, "out of memory");
	snprintf(url, sizeof(url), "http://carve%s", request->path);
	connection_use(curl, &connection);
	request_prepare(curl, request, url, &progress);
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, answer_append);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, &answer);
	if (body)
		curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
	CURLcode code = curl_easy_perform(curl);
	cleanup_free char *data = answer.data;
	if (code != CURLE_OK)
		return exchange_error(request, code, &connection, &ret->reach, err);
	ret->reach = HTTP_ANSWERED;
	curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &ret->status);
	ret->body =
		text_clean_json(json_loadb(data ? data : "", answer.size, JSON_DECODE_ANY, NULL));
	return 0;
}
