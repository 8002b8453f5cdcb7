#include "integrations/kubernetes/grpc/grpc_client.h"

#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "integrations/kubernetes/grpc/grpc_private.h"

#define STATUS "grpc-status:"

struct answer {
	struct grpc_buffer body;
	int status; /* gRPC's own; -1: none came */
};

static size_t on_body(char *data, size_t one, size_t size, void *arg)
{
	struct answer *answer = arg;

	return answer->body.size + size <= GRPC_ANSWER_MAX &&
			       grpc_buffer_add(&answer->body, data, size) == 0
		       ? size
		       : 0;
}

/* libcurl hands on trailers as it does headers. */
static size_t on_header(char *data, size_t one, size_t size, void *arg)
{
	struct answer *answer = arg;
	char text[64] = "";

	if (size < sizeof(text)) {
		memcpy(text, data, size);
		if (!strncmp(text, STATUS, strlen(STATUS)))
			answer->status = (int)strtol(text + strlen(STATUS), NULL, 10);
	}
	return size;
}

static CURLcode perform(const char *socket, const char *path, long timeout_ms,
			struct answer *answer)
{
	static const char empty[GRPC_PREFIX];
	struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/grpc");
	CURL *curl = curl_easy_init();
	char url[GRPC_PATH_SIZE + 32];
	CURLcode code = CURLE_OUT_OF_MEMORY;

	headers = headers ? curl_slist_append(headers, "TE: trailers") : NULL;
	snprintf(url, sizeof(url), "http://localhost%s", path);
	if (curl && headers) {
		curl_easy_setopt(curl, CURLOPT_URL, url);
		curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, socket);
		curl_easy_setopt(curl, CURLOPT_HTTP_VERSION,
				 (long)CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE);
		curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
		curl_easy_setopt(curl, CURLOPT_PROXY, "");
		curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, timeout_ms);
		curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
		curl_easy_setopt(curl, CURLOPT_POSTFIELDS, empty);
		curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)GRPC_PREFIX);
		curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
		curl_easy_setopt(curl, CURLOPT_WRITEDATA, answer);
		curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
		curl_easy_setopt(curl, CURLOPT_HEADERDATA, answer);
		code = curl_easy_perform(curl);
	}
	curl_easy_cleanup(curl);
	curl_slist_free_all(headers);
	return code;
}

int grpc_ask(const char *socket, const char *path, long timeout_ms, uint8_t **ret, size_t *ret_size,
	     struct error *err)
{
	struct answer answer = {.status = -1};
	CURLcode code = perform(socket, path, timeout_ms, &answer);
	const uint8_t *message = NULL;
	size_t size = 0;
	int rc = 0;

	if (code != CURLE_OK)
		rc = error_set(err, EXIT_CODE_UNREACHABLE, "%.200s does not answer: %s", socket,
			       curl_easy_strerror(code));
	else if (answer.status != GRPC_OK)
		rc = error_set(err, EXIT_CODE_FAILED, "%.200s answers %.100s with the status %d",
			       socket, path, answer.status);
	else if (grpc_message_find(answer.body.data, answer.body.size, &message, &size) < 0)
		rc = error_set(err, EXIT_CODE_FAILED, "%.200s answers %.100s with no message",
			       socket, path);
	if (rc < 0) {
		grpc_buffer_free(&answer.body);
		return rc;
	}
	if (message)
		memmove(answer.body.data, message, size);
	*ret = answer.body.data;
	*ret_size = size;
	return 0;
}
