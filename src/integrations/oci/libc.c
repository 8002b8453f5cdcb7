#include "integrations/oci/libc.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"

/* Those of today have 2 MiB. */
#define LIBC_MAX (16u << 20)
#define PIECE (16u << 10)
#define VERSION "GLIBC_" OCI_GLIBC_OLDEST

static const char *const places[] = {
	"/lib/x86_64-linux-gnu/libc.so.6",
	"/lib64/libc.so.6",
	"/usr/lib64/libc.so.6",
	"/usr/lib/libc.so.6",
};

/* Whether the file of a GNU C library is as new as that: it names the version of its symbols, near
 * its beginning. Small pieces in one buffer: fresh memory for the whole file costs far more time
 * than the search. */
static bool glibc_is_new(int fd)
{
	/* With the zero bytes around a name of the table. */
	static const char name[] = "\0" VERSION;
	char piece[PIECE + sizeof(name)];
	size_t kept = 0;
	ssize_t n;

	while ((n = read_all(fd, piece + kept, PIECE)) > 0) {
		size_t size = kept + (size_t)n;

		if (memmem(piece, size, name, sizeof(name)))
			return true;
		/* The name may begin in this piece and end in the next. */
		kept = size < sizeof(name) ? size : sizeof(name) - 1;
		memmove(piece, piece + size - kept, kept);
	}
	return false;
}

/* A regular file that can be the library, or -1. */
static int library_open(int root, const char *path)
{
	cleanup_close int fd = open_plain_in_root(root, AT_FDCWD, path);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || st.st_size <= 0 || st.st_size > LIBC_MAX)
		return -1;
	return steal_fd(&fd);
}

int oci_libc_check(const char *root, struct error *err)
{
	cleanup_close int fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	bool found = false;

	for (size_t i = 0; fd >= 0 && i < ARRAY_SIZE(places); i++) {
		cleanup_close int library = library_open(fd, places[i]);

		if (library >= 0 && glibc_is_new(library))
			return 0;
		found |= library >= 0;
	}
	if (!found)
		return 0;
	error_set(err, EXIT_CODE_FAILED,
		  "the image's C library is older than glibc " OCI_GLIBC_OLDEST
		  ": no program of it would start with carve's libraries");
	error_hint(err, "use an image of a newer distribution: Debian 10, RHEL 8, Ubuntu 18.10");
	return -err->code;
}
