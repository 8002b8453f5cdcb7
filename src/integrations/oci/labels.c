#include "integrations/oci/labels.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "container/json_file.h"
#include "container/wanted.h"
#include "integrations/oci/containerd.h"

#define LIST_MAX (64u << 20)
#define IMAGE_MAX (8u << 20)
#define CONTAINERS "-containers/"
#define USERDATA "/userdata"
#define IMAGE_ID_LENGTH 64
#define DOCKER_ID_LENGTH 64
#define DOCKER_RECORD "config.v2.json"
/* DATA/overlay2/LAYER/merged is the deepest root file system. */
#define DOCKER_DEPTH 3

int oci_file_open(const char *path, size_t max, size_t *ret_size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct stat st;

	if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (size_t)st.st_size > max))
		close_fd(&fd);
	if (fd >= 0)
		*ret_size = (size_t)st.st_size;
	return fd;
}

json_t *oci_json_read(const char *path, size_t max)
{
	size_t size;
	cleanup_close int fd = oci_file_open(path, max, &size);

	/* Numbers are not looked at, and some are larger than an integer here: limits of 2^64 - 1.
	 */
	return fd < 0 ? NULL : json_fd_load(fd, max, JSON_DECODE_INT_AS_REAL);
}

bool oci_labels_file(const char *image, char *buf, size_t size)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	char name[sizeof("sha256:") + IMAGE_ID_LENGTH];
	size_t used = 1, length = strlen(image);

	if (length != IMAGE_ID_LENGTH || strspn(image, "0123456789abcdef") != length)
		return false;
	length += (size_t)snprintf(name, sizeof(name), "sha256:%s", image) - length;
	if (size < 2 + (length + 2) / 3 * 4)
		return false;
	/* Base64, and '=' before it: the storage's way with names that have a ':'. */
	buf[0] = '=';
	for (size_t i = 0; i < length; i += 3) {
		uint32_t word = 0;

		for (size_t k = 0; k < 3; k++)
			word = word << 8 | (i + k < length ? (unsigned char)name[i + k] : 0);
		for (size_t k = 0; k < 4; k++)
			buf[used++] =
				(char)(i + k <= length ? digits[word >> (18 - 6 * k) & 63] : '=');
	}
	buf[used] = '\0';
	return true;
}

/* The image of a container in podman's list of them. */
static const char *image_find(const json_t *containers, const char *id)
{
	json_t *entry;
	size_t i;

	json_array_foreach((json_t *)containers, i, entry)
	{
		const char *its = json_string_value(json_object_get(entry, "id"));

		if (its && !strcmp(its, id))
			return json_string_value(json_object_get(entry, "image"));
	}
	return NULL;
}

static json_t *labels_of(json_t *json, const char *section)
{
	json_t *labels = json_object_get(json_object_get(json, section), "Labels");

	if (json_is_object(labels))
		json_incref(labels);
	else
		labels = NULL;
	json_decref(json);
	return labels;
}

/* The annotations in the manifest of an image, in its directory. */
static json_t *podman_annotations(const char *dir)
{
	char path[PATH_MAX + 16];

	snprintf(path, sizeof(path), "%s/manifest", dir);
	json_t *manifest = oci_json_read(path, IMAGE_MAX);
	json_t *annotations = json_incref(json_object_get(manifest, "annotations"));

	json_decref(manifest);
	return annotations;
}

/* The bundle is STORAGE/DRIVER-containers/ID/userdata. */
static void podman_labels(const struct oci_container *container, struct oci_labels *ret)
{
	char path[PATH_MAX + 32], dir[PATH_MAX], file[160];
	size_t length = strlen(container->bundle), tail = strlen(USERDATA);
	const char *image, *at = NULL;

	if (length < tail || strcmp(container->bundle + length - tail, USERDATA) != 0)
		return;
	for (const char *next = container->bundle; (next = strstr(next, CONTAINERS)); next++)
		at = next;
	if (!at)
		return;
	snprintf(path, sizeof(path), "%.*s" CONTAINERS "containers.json",
		 (int)(at - container->bundle), container->bundle);
	json_t *containers = oci_json_read(path, LIST_MAX);
	image = image_find(containers, container->id);
	if (image && oci_labels_file(image, file, sizeof(file)) &&
	    snprintf(dir, sizeof(dir), "%.*s-images/%s", (int)(at - container->bundle),
		     container->bundle, image) < (int)sizeof(dir) &&
	    snprintf(path, sizeof(path), "%s/%s", dir, file) < (int)sizeof(path)) {
		ret->all = labels_of(oci_json_read(path, IMAGE_MAX), "config");
		ret->image = ret->all ? json_incref(ret->all) : json_object();
		ret->annotations = podman_annotations(dir);
	}
	json_decref(containers);
}

/* CRI-O has podman's storage, and its bundles elsewhere: it names the image in an annotation, and
 * the root file system is STORAGE/overlay/LAYER/merged. */
static json_t *crio_labels(const struct oci_container *container)
{
	const char *image = json_string_value(
		json_object_get(container->annotations, "io.kubernetes.cri-o.ImageRef"));
	size_t length = strlen(container->root);
	char path[PATH_MAX + 256], file[160];

	if (!image || !oci_labels_file(image, file, sizeof(file)))
		return NULL;
	for (int i = 0; i < 2; i++)
		while (length && container->root[--length] != '/')
			;
	snprintf(path, sizeof(path), "%.*s-images/%s/%s", (int)length, container->root, image,
		 file);
	return labels_of(oci_json_read(path, IMAGE_MAX), "config");
}

/* docker has labels of the image and of `docker run` in one object. `data`: docker's directory.
 * NULL: its images are elsewhere, as with containerd's store. */
static json_t *docker_image(const char *data, const json_t *record)
{
	static const char prefix[] = "sha256:";
	const char *image = json_string_value(json_object_get(record, "Image"));
	const char *driver = json_string_value(json_object_get(record, "Driver"));
	char file[PATH_MAX + 256];

	if (!image || strncmp(image, prefix, sizeof(prefix) - 1) != 0 || !driver ||
	    strspn(driver, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(driver))
		return NULL;
	image += sizeof(prefix) - 1;
	if (strlen(image) != IMAGE_ID_LENGTH || strspn(image, "0123456789abcdef") != strlen(image))
		return NULL;
	snprintf(file, sizeof(file), "%s/image/%.64s/imagedb/content/sha256/%s", data, driver,
		 image);
	json_t *json = oci_json_read(file, IMAGE_MAX);
	if (!json_is_object(json_object_get(json, "config"))) {
		json_decref(json);
		return NULL;
	}
	json_t *labels = labels_of(json, "config");
	return labels ? labels : json_object();
}

/* docker's record of a container is DATA/containers/ID/config.v2.json. Its root file system is
 * below DATA, too, and nothing that an image or a user names is on the way. */
static void docker_labels(const struct oci_container *container, struct oci_labels *ret)
{
	size_t length = strlen(container->id);
	char data[PATH_MAX], path[PATH_MAX + 2 * DOCKER_ID_LENGTH];
	json_t *record = NULL;

	if (length != DOCKER_ID_LENGTH ||
	    strspn(container->id, "0123456789abcdef") != DOCKER_ID_LENGTH)
		return;
	snprintf(data, sizeof(data), "%s", container->root);
	for (int i = 0; i < DOCKER_DEPTH && !record; i++) {
		char *slash = strrchr(data, '/');

		if (!slash || slash == data)
			return;
		*slash = '\0';
		snprintf(path, sizeof(path), "%s/containers/%s/" DOCKER_RECORD, data,
			 container->id);
		record = oci_json_read(path, IMAGE_MAX);
	}
	if (!record)
		return;
	ret->image = docker_image(data, record);
	ret->all = labels_of(record, "Config");
	if (!ret->all)
		ret->all = json_object();
}

int oci_labels_find(const struct oci_container *container, struct oci_labels *ret,
		    struct error *err)
{
	struct containerd_place place;

	*ret = (struct oci_labels){0};
	podman_labels(container, ret);
	if (!ret->all)
		ret->all = crio_labels(container);
	if (!ret->all)
		docker_labels(container, ret);
	if (ret->all || !containerd_place(container->bundle, &place))
		return 0;
	if (strcmp(place.namespace, CONTAINERD_DOCKER) != 0)
		return containerd_labels(&place, &ret->all, err);
	/* docker's containers are containerd's, too, which has none of their labels. */
	error_set(err, EXIT_CODE_FAILED, "docker's record of container %.64s is not above %.200s",
		  container->id, container->root);
	error_hint(err, "without its labels no container starts, as they may limit it");
	return -err->code;
}

void oci_labels_clear(struct oci_labels *labels)
{
	json_decref(labels->all);
	json_decref(labels->image);
	json_decref(labels->annotations);
	*labels = (struct oci_labels){0};
}

bool oci_labels_image_joins(const struct oci_labels *labels, const json_t *annotations)
{
	const json_t *annotation = json_object_get(annotations, CONTAINER_LABEL_SESSION);
	const json_t *label = json_object_get(labels->all, CONTAINER_LABEL_SESSION);

	if (annotation)
		return json_equal(annotation,
				  json_object_get(labels->annotations, CONTAINER_LABEL_SESSION));
	return !labels->image ||
	       json_equal(label, json_object_get(labels->image, CONTAINER_LABEL_SESSION));
}
