#include "slice/places.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"

static int place(char buf[PATH_MAX], const char *dir, const char *rest, struct error *err)
{
	if (snprintf(buf, PATH_MAX, "%s/%s", dir, rest) >= PATH_MAX)
		return error_set(err, EXIT_CODE_FAILED, "%s/%s is too long a path", dir, rest);
	return 0;
}

/* Whether carve is in this directory. */
static bool is_ours(const char *dir)
{
	char probe[PATH_MAX];
	struct stat st;

	return snprintf(probe, sizeof(probe), "%s/carve", dir) < PATH_MAX &&
	       stat(probe, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & S_IXUSR);
}

/* The directory of the command `carve`: that of this program, or where this is libcarve in somebody
 * else's, the nearest one above the library (LIBDIR/../../bin, or that of the build). */
static int command_dir(char dir[static PATH_MAX])
{
	char above[PATH_MAX], bin[PATH_MAX];
	Dl_info library;
	int rc = executable_dir(dir, PATH_MAX);

	if (rc < 0 || is_ours(dir) || !dladdr((const void *)places_find, &library) ||
	    !realpath(library.dli_fname, above))
		return rc;
	for (char *slash; (slash = strrchr(above, '/')) && slash != above;) {
		*slash = '\0';
		if (snprintf(bin, sizeof(bin), "%s/bin", above) < PATH_MAX && is_ours(bin)) {
			memcpy(dir, bin, sizeof(bin));
			return 0;
		}
		if (is_ours(above)) {
			memcpy(dir, above, sizeof(above));
			return 0;
		}
	}
	return 0;
}

int places_find(struct places *ret, struct error *err)
{
	char dir[PATH_MAX], probe[PATH_MAX];
	int rc = command_dir(dir);

	if (rc < 0)
		return error_set(err, EXIT_CODE_FAILED, "cannot tell where carve is: %s",
				 strerrordesc_np(-rc));
	/* A build tree has src/front; an installed carve has its libraries beside bin. */
	if ((rc = place(probe, dir, "src/front", err)) < 0)
		return rc;
	bool built = access(probe, F_OK) == 0;
	static const char *const names[2][4] = {
		{"../sbin/carved", CARVE_LIB_FROM_BIN "/front/libcuda.so.1",
		 CARVE_LIB_FROM_BIN "/front/libnvidia-ml.so.1", CARVE_LIB_FROM_BIN "/sim/simhost"},
		{"carved", "src/front/libcuda.so.1", "src/front/libnvidia-ml.so.1", "sim/simhost"},
	};
	char *const paths[] = {ret->daemon, ret->front_cuda, ret->front_nvml, ret->simhost};
	for (int i = 0; i < 4; i++)
		if ((rc = place(paths[i], dir, names[built][i], err)) < 0)
			return rc;
	/* The place if it was installed with one bin directory only. */
	if (access(ret->daemon, X_OK) < 0)
		return place(ret->daemon, dir, "carved", err);
	return 0;
}

/* ld.so splits LD_PRELOAD at spaces and ':', LD_LIBRARY_PATH at ':' and ';', and expands what
 * follows '$' in both. The slice's file has a line for each variable. */
#define SEPARATORS " :;$\n"

static int path_check(const char *path, struct error *err)
{
	const char *found = strpbrk(path, SEPARATORS);
	int length = found ? (int)(strrchr(path, '/') - path) : 0;

	if (!found)
		return 0;
	error_set(err, EXIT_CODE_FAILED,
		  "carve's libraries in %.*s cannot be preloaded: the path has %s in it", length,
		  path,
		  *found == ' '   ? "a space"
		  : *found == ':' ? "a ':'"
		  : *found == ';' ? "a ';'"
		  : *found == '$' ? "a '$'"
				  : "a line's end");
	error_hint(err, "move carve to a directory whose path has no space, ':', ';', '$'");
	return -EXIT_CODE_FAILED;
}

int places_check(const struct places *places, struct error *err)
{
	const char *const paths[] = {places->front_cuda, places->front_nvml, places->simhost};
	int rc = 0;

	for (size_t i = 0; i < ARRAY_SIZE(paths) && rc == 0; i++)
		rc = path_check(paths[i], err);
	return rc;
}

static bool everyone_reads(const char *file)
{
	char path[PATH_MAX];
	struct stat st;

	if (strpbrk(file, SEPARATORS) || stat(file, &st) < 0 || !(st.st_mode & S_IROTH))
		return false;
	snprintf(path, sizeof(path), "%s", file);
	for (char *slash = strrchr(path, '/'); slash && slash > path; slash = strrchr(path, '/')) {
		*slash = '\0';
		if (stat(path, &st) < 0 || !(st.st_mode & S_IXOTH))
			return false;
	}
	return true;
}

bool places_serve_everyone(const struct places *places)
{
	return everyone_reads(places->front_cuda) && everyone_reads(places->front_nvml);
}
