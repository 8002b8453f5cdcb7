#include "daemon/host/handover.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/macros.h"
#include "daemon/host/peer.h"

/* The text that a busy host leaves is far below it. */
#define SIZE_MAX_BYTES ((off_t)256 << 20)
#define FD_MAX (1 << 24)

/* ---- leaving ----------------------------------------------------------------------------- */

struct handover *handover_new(void)
{
	struct handover *h = calloc(1, sizeof(*h));

	if (h)
		h->root = json_pack("{s:i, s:[]}", "version", HANDOVER_VERSION, "fds");
	return h;
}

json_t *handover_fd(struct handover *h, int fd)
{
	handover_add(h, "fds", json_integer(fd));
	return json_integer(fd);
}

json_t *handover_peer(const struct peer *peer)
{
	json_t *groups = json_array();

	for (unsigned i = 0; i < peer->groups.count; i++)
		json_array_append_new(groups, json_integer((json_int_t)peer->groups.gid[i]));
	return json_pack("{s:i, s:I, s:I, s:I, s:o, s:b, s:b}", "pid", (int)peer->process.pid,
			 "start_time", (json_int_t)peer->process.birth, "uid",
			 (json_int_t)peer->uid, "gid", (json_int_t)peer->gid, "groups", groups,
			 "admin", peer->admin, "of_pod", peer->of_pod);
}

void handover_add(struct handover *h, const char *key, json_t *value)
{
	json_t *list = json_object_get(h->root, key);

	if (!list) {
		list = json_array();
		json_object_set_new(h->root, key, list);
	}
	json_array_append_new(list, value);
}

static int text_to_memfd(const char *text)
{
	cleanup_close int fd = memfd_create("carve-handover", MFD_CLOEXEC);

	if (fd < 0)
		return -errno;
	int rc = write_all(fd, text, strlen(text));
	return rc < 0 ? rc : steal_fd(&fd);
}

int handover_seal(struct handover *h)
{
	cleanup_free char *text = json_dumps(h->root, JSON_COMPACT);
	int memfd = text ? text_to_memfd(text) : -ENOMEM;
	size_t i;
	json_t *fd;

	if (memfd < 0)
		return memfd;
	/* The driver's library may have opened some that would stay. */
	if (close_range(STDERR_FILENO + 1, ~0u, CLOSE_RANGE_CLOEXEC) < 0 ||
	    fcntl(memfd, F_SETFD, 0) < 0) {
		int rc = -errno;

		close(memfd);
		return rc;
	}
	json_array_foreach(json_object_get(h->root, "fds"), i, fd)(void)
		fcntl((int)json_integer_value(fd), F_SETFD, 0);
	return memfd;
}

/* ---- finding ----------------------------------------------------------------------------- */

static json_t *memfd_read(int fd)
{
	struct stat st;
	json_t *root = NULL;

	if (fstat(fd, &st) < 0 || st.st_size <= 0 || st.st_size > SIZE_MAX_BYTES)
		return NULL;
	void *at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (at == MAP_FAILED)
		return NULL;
	root = json_loadb(at, (size_t)st.st_size, 0, NULL);
	munmap(at, (size_t)st.st_size);
	return root;
}

/* Descriptors that are open, and not those of the standard streams. */
static bool fds_take_in(struct handover *h)
{
	const json_t *fds = json_object_get(h->root, "fds");
	size_t i;
	json_t *number;

	json_array_foreach(fds, i, number)
	{
		json_int_t fd = json_integer_value(number);

		if (fd <= STDERR_FILENO || fd >= FD_MAX || fcntl((int)fd, F_SETFD, FD_CLOEXEC) < 0)
			return false;
		h->taken_size = MAX(h->taken_size, (int)fd + 1);
	}
	h->taken = malloc((size_t)h->taken_size + 1);
	if (!h->taken)
		return false;
	memset(h->taken, 1, (size_t)h->taken_size + 1);
	json_array_foreach(fds, i, number) h->taken[json_integer_value(number)] = 0;
	return true;
}

struct handover *handover_find(void)
{
	const char *text = getenv(HANDOVER_ENV); // NOLINT(concurrency-mt-unsafe): at start
	struct handover *h = text ? calloc(1, sizeof(*h)) : NULL;
	long number = h ? strtol(text, NULL, 10) : -1;

	unsetenv(HANDOVER_ENV); // NOLINT(concurrency-mt-unsafe): likewise
	if (number <= STDERR_FILENO || number >= FD_MAX) {
		free(h);
		return NULL;
	}
	cleanup_close int fd = (int)number;
	h->root = memfd_read(fd);
	if (h->root &&
	    json_integer_value(json_object_get(h->root, "version")) == HANDOVER_VERSION &&
	    fds_take_in(h))
		return h;
	handover_free(h);
	return NULL;
}

int handover_take(struct handover *h, const json_t *number)
{
	json_int_t fd = json_integer_value(number);

	if (!json_is_integer(number) || fd < 0 || fd >= h->taken_size || h->taken[fd])
		return -1;
	h->taken[fd] = 1;
	return (int)fd;
}

bool handover_take_peer(const json_t *from, struct peer *ret)
{
	const json_t *pid = json_object_get(from, "pid"), *uid = json_object_get(from, "uid");

	if (!json_is_integer(pid) || !json_is_integer(uid))
		return false;
	*ret = (struct peer){
		.process = {.pid = (pid_t)json_integer_value(pid),
			    .birth = (uint64_t)json_integer_value(
				    json_object_get(from, "start_time"))},
		.uid = (uid_t)json_integer_value(uid),
		.gid = (gid_t)json_integer_value(json_object_get(from, "gid")),
		.admin = json_is_true(json_object_get(from, "admin")),
		.of_pod = json_is_true(json_object_get(from, "of_pod")),
	};
	const json_t *groups = json_object_get(from, "groups"), *gid;
	size_t i;
	json_array_foreach((json_t *)groups, i, gid)
	{
		if (ret->groups.count < PEER_GROUPS_MAX)
			ret->groups.gid[ret->groups.count++] = (gid_t)json_integer_value(gid);
	}
	return true;
}

void handover_free(struct handover *h)
{
	if (!h)
		return;
	for (int fd = 0; h->taken && fd < h->taken_size; fd++)
		if (!h->taken[fd])
			close(fd);
	free(h->taken);
	json_decref(h->root);
	free(h);
}
