#include "cli/places.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"

static int place(char buf[PATH_MAX], const char *dir, const char *rest, struct error *err)
{
	if (snprintf(buf, PATH_MAX, "%s/%s", dir, rest) >= PATH_MAX)
		return error_set(err, EXIT_CODE_FAILED, "%s/%s is too long a path", dir, rest);
	return 0;
}

int places_find(struct places *ret, struct error *err)
{
	char dir[PATH_MAX], probe[PATH_MAX];
	int rc = executable_dir(dir, sizeof(dir));

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
	/* Where it was installed with one bin directory only. */
	if (access(ret->daemon, X_OK) < 0)
		return place(ret->daemon, dir, "carved", err);
	return 0;
}

static bool everyone_reads(const char *file)
{
	char path[PATH_MAX];
	struct stat st;

	/* What separates entries of LD_PRELOAD, and what ld.so expands there. */
	if (strpbrk(file, " :$") || stat(file, &st) < 0 || !(st.st_mode & S_IROTH))
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
