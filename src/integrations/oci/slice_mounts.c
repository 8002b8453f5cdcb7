#include "integrations/oci/slice_mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/macros.h"
#include "base/trust.h"
#include "container/layout.h"
#include "integrations/oci/labels.h"
#include "integrations/oci/state.h"
#include "proto/attach.h"
#include "slice/places.h"

#define SESSION_CHARACTERS "abcdefghijklmnopqrstuvwxyz0123456789-"
/* Older drivers call an instance MIG-GPU-.../1/0. */
#define STAMP_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-/:,"

struct look {
	struct places places;
	struct oci_slice *slice;
	bool is_pods;
	bool has[OCI_SLICE_PARTS];
};

struct place {
	const char *to;
	enum oci_slice_part part; /* OCI_SLICE_PARTS: it proves nothing */
	/* NULL, or what is wrong with a source. Notes what it is. */
	const char *(*check)(struct look *look, const struct place *place, const char *from,
			     const struct stat *st);
};

bool oci_path_clean(const char *path, char *buf, size_t size)
{
	size_t used = 0;

	if (path[0] != '/' || strlen(path) >= size)
		return false;
	for (const char *at = path; *at;) {
		at += strspn(at, "/");
		size_t length = strcspn(at, "/");

		if (length == 2 && !memcmp(at, "..", 2)) {
			while (used && buf[--used] != '/')
				;
		} else if (length && !(length == 1 && *at == '.')) {
			buf[used++] = '/';
			memcpy(buf + used, at, length);
			used += length;
		}
		at += length;
	}
	if (!used)
		buf[used++] = '/';
	buf[used] = '\0';
	return true;
}

bool oci_slice_text_session(const char *text, char ret[static CONTAINER_LABEL_MAX + 1],
			    char stamp[static ATTACH_STAMP_SIZE])
{
	static const char head[] = ATTACH_ENV_SESSION "=", second[] = "\n" ATTACH_ENV_STAMP "=";
	char whole[ATTACH_SLICE_FILE_SIZE];
	const char *id = text + sizeof(head) - 1;

	if (strncmp(text, head, sizeof(head) - 1) != 0)
		return false;
	size_t length = strspn(id, SESSION_CHARACTERS);
	if (!length || length > CONTAINER_LABEL_MAX)
		return false;
	snprintf(ret, CONTAINER_LABEL_MAX + 1, "%.*s", (int)length, id);
	stamp[0] = '\0';
	if (!strncmp(id + length, second, sizeof(second) - 1)) {
		const char *value = id + length + sizeof(second) - 1;

		length = strspn(value, STAMP_CHARACTERS);
		if (!length || length >= ATTACH_STAMP_SIZE)
			return false;
		snprintf(stamp, ATTACH_STAMP_SIZE, "%.*s", (int)length, value);
	}
	container_environment_text(ret, stamp, whole, sizeof(whole));
	return !strcmp(text, whole);
}

/* ---- one source -------------------------------------------------------------------------- */

static const char *front_check(struct look *look, const struct place *place, const char *from,
			       const struct stat *st)
{
	struct stat own;

	return stat(place->part == OCI_SLICE_FRONT_CUDA ? look->places.front_cuda
							: look->places.front_nvml,
		    &own) == 0 &&
			       own.st_dev == st->st_dev && own.st_ino == st->st_ino
		       ? NULL
		       : "it is not the library that this hook was installed with";
}

static const char *driver_check(struct look *look, const struct place *place, const char *from,
				const struct stat *st)
{
	return S_ISREG(st->st_mode) ? NULL : "it is not a library of the driver";
}

/* DIRECTORY/containers or DIRECTORY/attach.sock: a daemon's directory is its user's. */
static const char *attach_check(struct look *look, const struct place *place, const char *from,
				const struct stat *st)
{
	bool directory = !strcmp(place->to, CONTAINER_ATTACH);
	const char *slash = strrchr(from, '/');
	uid_t uid;

	if (strcmp(slash + 1, directory ? CONTAINER_ATTACH_HOST : "attach.sock") != 0 ||
	    !(directory ? S_ISDIR(st->st_mode) : S_ISSOCK(st->st_mode)))
		return "it is not the attach socket of a daemon";
	if (server_directory_check(from, 0, &uid) != 0)
		return "it is in a directory of another user, whose daemon is not believed";
	snprintf(look->slice->attach, sizeof(look->slice->attach), "%s", from);
	return NULL;
}

/* False: it is no small plain file, or, for a pod, others than root may have written it. */
static bool text_read(const struct look *look, const char *from, char *buf, size_t size)
{
	size_t length = 0;
	struct stat st;
	cleanup_close int fd = oci_file_open(from, size - 1, &length);

	if (fd < 0 || fstat(fd, &st) < 0 || read_all(fd, buf, length) != (ssize_t)length ||
	    (look->is_pods && (st.st_uid != 0 || st.st_mode & (S_IWGRP | S_IWOTH))))
		return false;
	buf[length] = '\0';
	return strlen(buf) == length;
}

static const char *environment_check(struct look *look, const struct place *place, const char *from,
				     const struct stat *st)
{
	char text[ATTACH_SLICE_FILE_SIZE + 1];

	/* A device is not even opened. */
	return S_ISREG(st->st_mode) && text_read(look, from, text, sizeof(text)) &&
			       oci_slice_text_session(text, look->slice->session,
						      look->slice->stamp)
		       ? NULL
		       : "it is not a file that carve wrote for a slice";
}

static const char *preload_check(struct look *look, const struct place *place, const char *from,
				 const struct stat *st)
{
	char text[sizeof(CONTAINER_PRELOAD_TEXT)];

	return S_ISREG(st->st_mode) && text_read(look, from, text, sizeof(text)) &&
			       !strcmp(text, CONTAINER_PRELOAD_TEXT)
		       ? NULL
		       : "it is not a file that carve wrote for a slice";
}

static const struct place places[] = {
	{CONTAINER_FRONT_CUDA, OCI_SLICE_FRONT_CUDA, front_check},
	{CONTAINER_FRONT_NVML, OCI_SLICE_FRONT_NVML, front_check},
	{CONTAINER_ATTACH, OCI_SLICE_ATTACH, attach_check},
	{CONTAINER_SOCKET, OCI_SLICE_ATTACH, attach_check},
	{CONTAINER_ENVIRONMENT, OCI_SLICE_ENVIRONMENT, environment_check},
	{CONTAINER_PRELOAD, OCI_SLICE_PRELOAD, preload_check},
	{CONTAINER_DRIVER_CUDA, OCI_SLICE_PARTS, driver_check},
	{CONTAINER_DRIVER_NVML, OCI_SLICE_PARTS, driver_check},
};

/* The path of each part, for a message that it is missing. */
static const char *const part_texts[] = {
	[OCI_SLICE_FRONT_CUDA] = CONTAINER_FRONT_CUDA,
	[OCI_SLICE_FRONT_NVML] = CONTAINER_FRONT_NVML,
	[OCI_SLICE_ATTACH] = CONTAINER_ATTACH,
	[OCI_SLICE_ENVIRONMENT] = CONTAINER_ENVIRONMENT,
	[OCI_SLICE_PRELOAD] = CONTAINER_PRELOAD,
};
_Static_assert(ARRAY_SIZE(part_texts) == OCI_SLICE_PARTS, "each part has a name");

/* ---- the configuration ------------------------------------------------------------------- */

static int foreign_error(const char *to, const char *from, const char *why, struct error *err)
{
	error_set(err, EXIT_CODE_NOT_PERMITTED,
		  "the mount at %.100s, of %.150s, is not carve's: %s", to,
		  *from ? from : "nothing", why);
	error_hint(err, "carve alone mounts below " ATTACH_SLICE_DIR
			": give the volume of the image (VOLUME), of the pod or of the command "
			"line another path");
	return -err->code;
}

static bool is_below(const char *path, const char *directory)
{
	size_t length = strlen(directory);

	return !strncmp(path, directory, length) && (path[length] == '/' || !path[length]);
}

/* An image's own list of libraries to preload may be a mount, too: the hook adds to it. */
static int mount_look(struct look *look, const char *to, const char *from, struct error *err)
{
	const char *why = "carve mounts nothing at this path";
	struct stat st;

	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		const struct place *place = &places[i];

		if (strcmp(place->to, to) != 0)
			continue;
		why = *from != '/' || lstat(from, &st) < 0 ? "its source is not a file of the host"
							   : place->check(look, place, from, &st);
		if (why || place->part == OCI_SLICE_PARTS)
			break;
		look->has[place->part] = true;
		look->slice->source[place->part].dev = st.st_dev;
		look->slice->source[place->part].ino = st.st_ino;
		break;
	}
	return why && is_below(to, ATTACH_SLICE_DIR) ? foreign_error(to, from, why, err) : 0;
}

int oci_slice_find(const json_t *config, bool is_pods, struct oci_slice *ret, struct error *err)
{
	struct look look = {.slice = ret, .is_pods = is_pods};
	char to[PATH_MAX], any[PATH_MAX] = "";
	json_t *mount;
	size_t i;
	int rc = 0;

	*ret = (struct oci_slice){0};
	json_array_foreach(json_object_get(config, "mounts"), i, mount)
	{
		if (!oci_path_clean(json_text(mount, "destination"), to, sizeof(to)) ||
		    (!is_below(to, ATTACH_SLICE_DIR) && strcmp(to, CONTAINER_PRELOAD) != 0))
			continue;
		if (!*look.places.front_cuda)
			rc = places_find(&look.places, err);
		if (rc == 0)
			rc = mount_look(&look, to, json_text(mount, "source"), err);
		if (rc < 0)
			return rc;
		if (is_below(to, ATTACH_SLICE_DIR))
			memcpy(any, to, strlen(to) + 1);
	}
	for (i = 0; *any && i < OCI_SLICE_PARTS; i++)
		if (!look.has[i]) {
			error_set(err, EXIT_CODE_NOT_PERMITTED,
				  "the container has a mount of carve's at %.100s and none at %s",
				  any, part_texts[i]);
			error_hint(err,
				   "carve mounts all of a slice, or nothing: carve podman run, "
				   "carve docker run, or a CDI device");
			return -err->code;
		}
	return 0;
}

/* ---- the container ----------------------------------------------------------------------- */

int oci_slice_check(const struct oci_slice *slice, const struct oci_container *container,
		    struct error *err)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d/root", (int)container->pid);
	cleanup_close int its = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	cleanup_close int root = its < 0 ? -errno : open_in_root(its, container->root, O_PATH);
	for (size_t i = 0; i < OCI_SLICE_PARTS; i++) {
		/* An older container has the socket and not its directory. */
		bool socket = i == OCI_SLICE_ATTACH &&
			      strcmp(strrchr(slice->attach, '/'), "/" CONTAINER_ATTACH_HOST) != 0;
		cleanup_close int fd =
			root < 0 ? root
				 : open_in_root(root, socket ? CONTAINER_SOCKET : part_texts[i],
						O_PATH | O_NOFOLLOW);

		if (fd >= 0 && fstat(fd, &st) == 0 && st.st_dev == slice->source[i].dev &&
		    st.st_ino == slice->source[i].ino)
			continue;
		error_set(err, EXIT_CODE_NOT_PERMITTED,
			  "the container has something else over carve's mount at %s",
			  part_texts[i]);
		error_hint(err, "a link of the image leads a volume there: remove the link or the "
				"volume");
		return -err->code;
	}
	return 0;
}
