#include "slice/driver_look.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/macros.h"
#include "slice/ld_cache.h"

#ifdef __aarch64__
#define OWN_MACHINE EM_AARCH64
#else
#define OWN_MACHINE EM_X86_64
#endif

/* The directories in which ld.so has looked so far. */
enum look { LOOK_ON, LOOK_FOUND, LOOK_UNKNOWN };

struct looked {
	enum look state;
	char *path;
};

/* Subdirectories in which ld.so looks first: of glibc 2.33 and newer, and of older ones. */
static bool has_variants(const char *directory)
{
	static const char *const names[] = {"glibc-hwcaps", "tls",    "haswell",
					    "avx512_1",     "x86_64", "atomics"};
	char path[PATH_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (snprintf(path, sizeof(path), "%s/%s", directory, names[i]) <
			    (int)sizeof(path) &&
		    access(path, F_OK) == 0)
			return true;
	return false;
}

static bool is_of_own_machine(const char *path)
{
	Elf64_Ehdr header;
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	return fd >= 0 && read(fd, &header, sizeof(header)) == sizeof(header) &&
	       !memcmp(header.e_ident, ELFMAG, SELFMAG) && header.e_ident[EI_CLASS] == ELFCLASS64 &&
	       header.e_machine == OWN_MACHINE;
}

static enum look look_in(const char *name, const char *directory, char path[static PATH_MAX])
{
	if (*directory != '/' || strchr(directory, '$') || has_variants(directory) ||
	    snprintf(path, PATH_MAX, "%s/%s", directory, name) >= PATH_MAX)
		return LOOK_UNKNOWN;
	if (access(path, F_OK) < 0)
		return LOOK_ON;
	return is_of_own_machine(path) ? LOOK_FOUND : LOOK_UNKNOWN;
}

static enum look look_along(const char *name, const char *list, char path[static PATH_MAX])
{
	enum look look = LOOK_ON;
	char directory[PATH_MAX];

	while (look == LOOK_ON && *list) {
		size_t length = strcspn(list, ":;");

		snprintf(directory, sizeof(directory), "%.*s", (int)length, list);
		look = length < sizeof(directory) ? look_in(name, directory, path) : LOOK_UNKNOWN;
		list += length;
		/* The directory behind a last colon is the working directory. */
		if (*list && !*++list && look == LOOK_ON)
			look = LOOK_UNKNOWN;
	}
	return look;
}

/* Libraries of other machines are in the cache, too. */
static void consider(void *arg, const char *path)
{
	struct looked *looked = arg;

	if (looked->state != LOOK_ON)
		return;
	if (strstr(path, "/glibc-hwcaps/") || strlen(path) >= PATH_MAX) {
		looked->state = LOOK_UNKNOWN;
	} else if (is_of_own_machine(path)) {
		looked->state = LOOK_FOUND;
		snprintf(looked->path, PATH_MAX, "%s", path);
	}
}

bool driver_look(const char *name, const char *library_path, const void *cache, size_t size,
		 char path[static PATH_MAX])
{
	struct looked looked = {.path = path};

	if (library_path)
		looked.state = look_along(name, library_path, path);
	if (looked.state == LOOK_ON)
		ld_cache_each(cache, size, name, consider, &looked);
	return looked.state == LOOK_FOUND;
}
