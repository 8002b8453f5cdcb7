#include "slice/driver_find.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "proto/attach.h"
#include "slice/driver_look.h"
#include "slice/ld_cache.h"
#include "slice/slice_env.h"

/* In a child, which ends without unloading: a driver's destructors are not ours to run. */
static void library_locate(const char *name, char path[PATH_MAX])
{
	void *library = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
	struct link_map *map;

	path[0] = '\0';
	if (library && dlinfo(library, RTLD_DI_LINKMAP, &map) == 0)
		snprintf(path, PATH_MAX, "%s", map->l_name);
}

static void driver_links(struct driver_libs *ret)
{
	library_locate("libcuda.so.1", ret->cuda);
	library_locate("libnvidia-ml.so.1", ret->nvml);
}

/* False: it leads nowhere. */
static bool link_follow(const char *link, char path[PATH_MAX])
{
	if (*link && realpath(link, path))
		return true;
	path[0] = '\0';
	return false;
}

_Noreturn static void libraries_send(int fd)
{
	static struct driver_libs links, found;

	driver_links(&links);
	(void)link_follow(links.cuda, found.cuda);
	(void)link_follow(links.nvml, found.nvml);
	_exit(write_all(fd, &found, sizeof(found)) < 0);
}

static void path_copy(char to[PATH_MAX], const char *from)
{
	snprintf(to, PATH_MAX, "%s", from ? from : "");
}

static bool slice_tells(void)
{
	return slice_env_session() && secure_getenv(ATTACH_ENV_CUDA);
}

static bool is_given(const char *variable)
{
	const char *value = secure_getenv(variable);

	return value && *value;
}

/* Without ld.so: loading the two libraries took a third of the time of a short command. A library
 * that is loaded already, as by LD_PRELOAD, would count before all others. */
static bool driver_looked_up(struct driver_libs *ret)
{
	const char *library_path = secure_getenv("LD_LIBRARY_PATH");
	struct driver_libs links;
	size_t size = 0;

	if (is_given("LD_PRELOAD") || is_given("LD_AUDIT"))
		return false;
	void *cache = ld_cache_map(&size);
	bool found = driver_look("libcuda.so.1", library_path, cache, size, links.cuda) &&
		     driver_look("libnvidia-ml.so.1", library_path, cache, size, links.nvml) &&
		     link_follow(links.cuda, ret->cuda) && link_follow(links.nvml, ret->nvml);
	if (cache)
		munmap(cache, size);
	return found;
}

int driver_find(struct driver_libs *ret, struct error *err)
{
	int fds[2];

	if (slice_tells()) {
		path_copy(ret->cuda, secure_getenv(ATTACH_ENV_CUDA));
		path_copy(ret->nvml, secure_getenv(ATTACH_ENV_NVML));
		return 0;
	}
	if (driver_looked_up(ret))
		return 0;
	if (pipe(fds) < 0)
		return error_set(err, EXIT_CODE_FAILED, "cannot look for the driver: %s",
				 strerrordesc_np(errno));
	cleanup_close int in = fds[0], out = fds[1];
	pid_t child = fork();
	if (child == 0)
		libraries_send(out);
	close_fd(&out);
	ssize_t length = child < 0 ? 0 : read_all(in, ret, sizeof(*ret));
	if (child > 0)
		waitpid(child, NULL, 0);
	if (length != sizeof(*ret))
		return error_set(err, EXIT_CODE_FAILED,
				 "looking for the driver failed: libcuda.so.1 does not load");
	return 0;
}
