#include "slice/driver_files.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "proto/driver_places.h"
#include "slice/driver_find.h"
#include "slice/ld_cache.h"
#include "slice/places.h"

static const char *const directories[] = {DRIVER_DIRECTORIES, "/usr/local/cuda/compat"};

struct search {
	struct driver_files *found;
	struct driver_file front[2]; /* carve's own: never the driver's */
	uint16_t machine;
	unsigned char elf_class;
	bool nvml; /* the library that is looked for */
	bool overflow;
};

static bool same_file(const struct driver_file *a, const struct driver_file *b)
{
	return a->device == b->device && a->inode == b->inode;
}

/* 0 or -errno; -ENOEXEC: not an ELF file. */
static int elf_kind(const char *path, unsigned char *ret_class, uint16_t *ret_machine)
{
	/* The part that all classes have in common. */
	Elf32_Ehdr header;
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return -errno;
	if (read(fd, &header, sizeof(header)) != sizeof(header) ||
	    memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
		return -ENOEXEC;
	*ret_class = header.e_ident[EI_CLASS];
	*ret_machine = header.e_machine;
	return 0;
}

static bool is_known(const struct search *search, const struct driver_file *file)
{
	for (size_t i = 0; i < ARRAY_SIZE(search->front); i++)
		if (same_file(&search->front[i], file))
			return true;
	for (size_t i = 0; i < search->found->count; i++)
		if (same_file(&search->found->file[i], file))
			return true;
	return false;
}

static void consider(void *arg, const char *name)
{
	struct search *search = arg;
	struct driver_file file = {.nvml = search->nvml};
	unsigned char elf_class = ELFCLASSNONE;
	uint16_t machine = EM_NONE;
	char path[PATH_MAX];
	struct stat st;

	/* Most are not there, or known by another name: their paths are not taken apart. */
	if (stat(name, &st) < 0 || !S_ISREG(st.st_mode))
		return;
	file.device = st.st_dev;
	file.inode = st.st_ino;
	if (is_known(search, &file) || elf_kind(name, &elf_class, &machine) < 0 ||
	    elf_class != search->elf_class || machine != search->machine || !realpath(name, path))
		return;
	file.path = search->found->count < DRIVER_FILES_MAX ? strdup(path) : NULL;
	if (file.path)
		search->found->file[search->found->count++] = file;
	else
		search->overflow = true;
}

/* By the names that programs open. */
static void consider_directory(struct search *search, const char *directory, size_t length)
{
	const char *stem = search->nvml ? DRIVER_NVML_NAME : DRIVER_CUDA_NAME;
	char path[PATH_MAX];

	for (int i = 0; i < 2; i++)
		if (length && snprintf(path, sizeof(path), "%.*s/%s%s", (int)length, directory,
				       stem, i ? "" : ".1") < (int)sizeof(path))
			consider(search, path);
}

static void consider_library_path(struct search *search)
{
	const char *list = secure_getenv("LD_LIBRARY_PATH");

	while (list && *list) {
		size_t length = strcspn(list, ":;");

		consider_directory(search, list, length);
		list += length + (list[length] != '\0');
	}
}

static void consider_cache(struct search *search, const void *cache, size_t size)
{
	ld_cache_each(cache, size, search->nvml ? DRIVER_NVML_NAME : DRIVER_CUDA_NAME, consider,
		      search);
	ld_cache_each(cache, size, search->nvml ? DRIVER_NVML_NAME ".1" : DRIVER_CUDA_NAME ".1",
		      consider, search);
}

static void search_library(struct search *search, const char *known, const void *cache, size_t size)
{
	if (*known)
		consider(search, known);
	consider_library_path(search);
	if (cache)
		consider_cache(search, cache, size);
	for (size_t i = 0; i < ARRAY_SIZE(directories); i++)
		consider_directory(search, directories[i], strlen(directories[i]));
}

/* The driver must be of the same class and machine as the front. */
static int front_look(struct search *search, const struct places *places, struct error *err)
{
	const char *const paths[] = {places->front_cuda, places->front_nvml};
	struct stat st;

	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		int rc = stat(paths[i], &st) < 0
				 ? -errno
				 : elf_kind(paths[i], &search->elf_class, &search->machine);
		if (rc < 0)
			return error_set(err, EXIT_CODE_FAILED,
					 "carve's own library %.300s cannot be read: %s", paths[i],
					 strerrordesc_np(-rc));
		search->front[i].device = st.st_dev;
		search->front[i].inode = st.st_ino;
	}
	return 0;
}

int driver_files_find(struct driver_files *ret, const struct driver_libs *driver,
		      const struct places *places, struct error *err)
{
	struct search search = {.found = ret};
	size_t size = 0;
	int rc = front_look(&search, places, err);

	if (rc < 0)
		return rc;
	void *cache = ld_cache_map(&size);
	for (int nvml = 0; nvml < 2; nvml++) {
		search.nvml = nvml;
		search_library(&search, nvml ? driver->nvml : driver->cuda, cache, size);
	}
	if (cache)
		munmap(cache, size);
	if (!search.overflow)
		return 0;
	driver_files_clear(ret);
	return error_set(err, EXIT_CODE_FAILED,
			 "there are more than %d copies of the driver's libraries here",
			 DRIVER_FILES_MAX);
}

void driver_files_clear(struct driver_files *files)
{
	while (files->count)
		free(files->file[--files->count].path);
}
