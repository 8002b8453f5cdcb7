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

/* A script's interpreter may be a script: Linux follows so many, and then fails with ELOOP. */
#define INTERPRETERS_MAX 5

/* Finds the first file of that name in the directories of the PATH which access(2) allows `mode`.
 */
static bool found_in_path(const char *name, int mode, char ret[static PATH_MAX])
{
	const char *path = secure_getenv("PATH");

	for (path = path ? path : "/usr/bin:/bin"; *path; path += *path == ':') {
		size_t length = strcspn(path, ":");

		if (length &&
		    snprintf(ret, PATH_MAX, "%.*s/%s", (int)length, path, name) < PATH_MAX &&
		    access(ret, mode) == 0)
			return true;
		path += length;
	}
	return false;
}

bool program_is_there(const char *name)
{
	char place[PATH_MAX];

	return found_in_path(name, X_OK, place);
}

/* Reads the program that a script names in its first line. False: the file is no script. */
static bool interpreter_of(const char *name, char ret[static 256])
{
	cleanup_close int fd = open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	char line[258] = "";
	ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof(line) - 1);

	if (n < 2 || strncmp(line, "#!", 2) != 0)
		return false;
	const char *at = line + 2 + strspn(line + 2, " \t");

	snprintf(ret, 256, "%.*s", (int)strcspn(at, " \t\n"), at);
	return *ret != '\0';
}

/* Says why a script's interpreter cannot be executed. False: nothing is wrong with it. */
static bool interpreter_why(const char *script, char *interpreter,
			    char buf[static PROGRAM_WHY_SIZE])
{
	size_t length = strlen(interpreter);
	struct stat st;
	int rc = stat(interpreter, &st);

	if (rc < 0 && interpreter[length - 1] == '\r') {
		interpreter[length - 1] = '\0';
		snprintf(
			buf, PROGRAM_WHY_SIZE,
			"its first line ends in CR LF, so that its interpreter would be \"%.120s\" "
			"with a CR (sed -i 's/\\r$//' %.160s mends it)",
			interpreter, script);
	} else if (rc < 0 && *interpreter != '/')
		snprintf(buf, PROGRAM_WHY_SIZE,
			 "its interpreter %.120s is not there: the first line of %.160s has to "
			 "name a whole "
			 "path, for example /usr/bin/env %.120s",
			 interpreter, script, interpreter);
	else if (rc < 0)
		snprintf(buf, PROGRAM_WHY_SIZE,
			 "its interpreter %.160s is not there (the first line of %.160s names it)",
			 interpreter, script);
	else if (S_ISDIR(st.st_mode))
		snprintf(
			buf, PROGRAM_WHY_SIZE,
			"its interpreter %.160s is a directory (the first line of %.160s names it)",
			interpreter, script);
	else if (faccessat(AT_FDCWD, interpreter, X_OK, AT_EACCESS) < 0)
		snprintf(buf, PROGRAM_WHY_SIZE,
			 "its interpreter %.160s is not executable (the first line of %.160s names "
			 "it)",
			 interpreter, script);
	else
		return false;
	return true;
}

/* Says which interpreter is missing of a script, whose interpreters may be scripts, too. False: the
 * file is no script, or nothing is wrong with its interpreters. */
static bool script_why(const char *file, char buf[static PROGRAM_WHY_SIZE])
{
	char script[PATH_MAX], interpreter[256];

	snprintf(script, sizeof(script), "%s", file);
	for (int i = 0; i <= INTERPRETERS_MAX && interpreter_of(script, interpreter); i++) {
		if (interpreter_why(script, interpreter, buf))
			return true;
		snprintf(script, sizeof(script), "%s", interpreter);
	}
	return false;
}

/* Says what is wrong with a file that is there. */
static void file_why(const char *file, int error, char buf[static PROGRAM_WHY_SIZE])
{
	struct stat st;
	bool seen = stat(file, &st) == 0;

	if (error == EACCES && seen && S_ISDIR(st.st_mode))
		snprintf(buf, PROGRAM_WHY_SIZE, "is a directory");
	else if (error == EACCES && seen && !(st.st_mode & (S_IXUSR | S_IXGRP | S_IXOTH)))
		snprintf(buf, PROGRAM_WHY_SIZE, "is not executable (chmod +x makes it so)");
	/* execve(2) fails with the script's error where the error is its interpreter's. */
	else if (script_why(file, buf))
		return;
	else if (error == ENOENT)
		snprintf(buf, PROGRAM_WHY_SIZE,
			 "its loader is not there: it was built for another system");
	else if (error == ELOOP && seen)
		snprintf(buf, PROGRAM_WHY_SIZE,
			 "its interpreter is a script whose interpreter is a script, and so on: "
			 "more than %d",
			 INTERPRETERS_MAX);
	else
		snprintf(buf, PROGRAM_WHY_SIZE, "cannot be executed: %s", strerrordesc_np(error));
}

int program_why(const char *name, int error, char buf[static PROGRAM_WHY_SIZE])
{
	char file[PATH_MAX], target[256] = "", why[PROGRAM_WHY_SIZE];
	bool path = strchr(name, '/') != NULL || !strcmp(name, ".") || !strcmp(name, "..");
	struct stat st;

	if (path)
		snprintf(file, sizeof(file), "%s", name);
	if (path ? error == ENOENT && lstat(file, &st) < 0
		 : !*name || !found_in_path(name, F_OK, file)) {
		snprintf(buf, PROGRAM_WHY_SIZE, "%s",
			 path ? "there is no such file" : "command not found");
		return EXIT_CODE_NOT_FOUND;
	}
	if (error == ENOENT && stat(file, &st) < 0 &&
	    readlink(file, target, sizeof(target) - 1) >= 0) {
		snprintf(buf, PROGRAM_WHY_SIZE, "is a link to %s, which is not there", target);
		return EXIT_CODE_NOT_FOUND;
	}
	file_why(file, error, why);
	/* A command of the PATH is told by its file. */
	snprintf(buf, PROGRAM_WHY_SIZE, "%.128s%s%.380s", path ? "" : file, path ? "" : ": ", why);
	return EXIT_CODE_NOT_EXECUTABLE;
}
