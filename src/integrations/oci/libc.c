#include "integrations/oci/libc.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"

/* Those of today have 2 MiB. */
#define LIBC_MAX (16u << 20)
#define VERSION "GLIBC_" OCI_GLIBC_OLDEST

static const char *const places[] = {
	"/lib/x86_64-linux-gnu/libc.so.6",
	"/lib64/libc.so.6",
	"/usr/lib64/libc.so.6",
	"/usr/lib/libc.so.6",
};

/* Whether the file of a GNU C library is as new as that: it names the version of its symbols. */
static bool glibc_is_new(const char *file, size_t size)
{
	/* With the zero bytes around a name of the table. */
	static const char name[] = "\0" VERSION;

	return memmem(file, size, name, sizeof(name)) != NULL;
}

/* A regular file, read whole; NULL: there is none, or it cannot be the library. */
static char *file_in_root(int root, const char *path, size_t *ret_size)
{
	cleanup_close int fd = open_in_root(root, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size <= 0 ||
	    st.st_size > LIBC_MAX)
		return NULL;
	char *text = malloc((size_t)st.st_size);
	ssize_t n = text ? read_all(fd, text, (size_t)st.st_size) : 0;
	*ret_size = n > 0 ? (size_t)n : 0;
	return text;
}

int oci_libc_check(const char *root, struct error *err)
{
	cleanup_close int fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	bool found = false;

	for (size_t i = 0; fd >= 0 && i < ARRAY_SIZE(places); i++) {
		size_t size;
		cleanup_free char *file = file_in_root(fd, places[i], &size);

		if (file && glibc_is_new(file, size))
			return 0;
		found |= file != NULL;
	}
	if (!found)
		return 0;
	error_set(err, EXIT_CODE_FAILED,
		  "the image's C library is older than glibc " OCI_GLIBC_OLDEST
		  ": no program of it would start with carve's libraries");
	error_hint(err, "use an image of a newer distribution: Debian 10, RHEL 8, Ubuntu 18.10");
	return -err->code;
}
