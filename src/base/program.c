#include "base/program.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"

bool program_is_there(const char *name)
{
	const char *path = secure_getenv("PATH");
	char place[PATH_MAX];

	for (path = path ? path : "/usr/bin:/bin"; *path; path += *path == ':') {
		size_t length = strcspn(path, ":");

		if (length &&
		    snprintf(place, sizeof(place), "%.*s/%s", (int)length, path, name) <
			    (int)sizeof(place) &&
		    access(place, X_OK) == 0)
			return true;
		path += length;
	}
	return false;
}

/* The program that a script names in its first line; false: it is no script. */
static bool interpreter_of(const char *name, char ret[static 256])
{
	cleanup_close int fd = open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	char line[258] = "";
	ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof(line) - 1);

	if (n < 2 || strncmp(line, "#!", 2) != 0)
		return false;
	const char *at = line + 2 + strspn(line + 2, " \t");

	snprintf(ret, 256, "%.*s", (int)strcspn(at, " \t\r\n"), at);
	return true;
}

/* execve(2) says ENOENT of a file that is there if a program that it needs is not. */
static int part_missing(const char *name, char buf[static PROGRAM_WHY_SIZE])
{
	char target[256] = "", interpreter[256];
	ssize_t n = readlink(name, target, sizeof(target) - 1);
	struct stat st;

	if (n >= 0 && stat(name, &st) < 0) {
		snprintf(buf, PROGRAM_WHY_SIZE, "is a link to %s, which is not there", target);
		return EXIT_CODE_NOT_FOUND;
	}
	if (interpreter_of(name, interpreter))
		snprintf(buf, PROGRAM_WHY_SIZE,
			 "its interpreter %s is not there (the first line of the script names it)",
			 interpreter);
	else
		snprintf(buf, PROGRAM_WHY_SIZE,
			 "its loader is not there: it was built for another system");
	return EXIT_CODE_NOT_EXECUTABLE;
}

int program_why(const char *name, int error, char buf[static PROGRAM_WHY_SIZE])
{
	bool path = strchr(name, '/') != NULL;
	struct stat st, link;

	if (error == ENOENT && (!path || lstat(name, &link) < 0)) {
		snprintf(buf, PROGRAM_WHY_SIZE, "%s",
			 path ? "there is no such file" : "command not found");
		return EXIT_CODE_NOT_FOUND;
	}
	if (error == ENOENT)
		return part_missing(name, buf);
	bool seen = path && stat(name, &st) == 0;
	if (error == EACCES && seen && S_ISDIR(st.st_mode))
		snprintf(buf, PROGRAM_WHY_SIZE, "is a directory");
	else if (error == EACCES && seen && !(st.st_mode & (S_IXUSR | S_IXGRP | S_IXOTH)))
		snprintf(buf, PROGRAM_WHY_SIZE, "is not executable (chmod +x makes it so)");
	else
		snprintf(buf, PROGRAM_WHY_SIZE, "cannot be executed: %s", strerrordesc_np(error));
	return EXIT_CODE_NOT_EXECUTABLE;
}
