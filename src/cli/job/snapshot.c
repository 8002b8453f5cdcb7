#include "cli/job/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "cli/user_dir.h"

#define WORDS_MAX 20

/* A tree that came from elsewhere may name programs of its own: none of these runs for a copy. */
#define GIT_WORDS "git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"

/* ---- git ---------------------------------------------------------------------------------- */

_Noreturn static void git_become(char **argv, const char *index, int out, int said)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	(void)dup2(null, STDIN_FILENO);
	(void)dup2(out, STDOUT_FILENO);
	(void)dup2(said, STDERR_FILENO);
	if (index)
		setenv("GIT_INDEX_FILE", index, 1);
	execvp("git", argv);
	_exit(EXIT_CODE_NOT_FOUND);
}

/* The first line of git's own words, as the one line of carve's. */
static int git_failed(struct error *err, const char *word, int said)
{
	char text[256] = "", *line = text;
	ssize_t n = said < 0 ? 0 : pread(said, text, sizeof(text) - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	text[strcspn(text, "\n")] = '\0';
	if (!strncmp(line, "fatal: ", strlen("fatal: ")))
		line += strlen("fatal: ");
	error_set(err, EXIT_CODE_FAILED, "--snapshot: git %s: %s", word,
		  *line ? line : "it failed");
	error_hint(err, "it copies the git tree that this directory is in");
	return -EXIT_CODE_FAILED;
}

/* Runs git with a list of words, ended by NULL, and another index (NULL: the tree's own); its first
 * line is put into `line`. 0, or negative with *err. */
static int git(struct error *err, const char *index, char line[static PATH_MAX], ...)
{
	char *argv[WORDS_MAX + 2] = {GIT_WORDS};
	int ends[2], status = -1;
	size_t used = 0, first = ARRAY_SIZE(((char *[]){GIT_WORDS})), count = first;
	va_list words;

	va_start(words, line);
	/* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): clang 14 does not follow va_start */
	while (count <= WORDS_MAX && (argv[count] = va_arg(words, char *)))
		count++;
	va_end(words);
	if (pipe2(ends, O_CLOEXEC) < 0)
		return error_set(err, EXIT_CODE_FAILED, "--snapshot: %s", strerrordesc_np(errno));
	cleanup_close int said = memfd_create("git", MFD_CLOEXEC);
	pid_t child = fork();
	if (child == 0)
		git_become(argv, index, ends[1], said);
	close(ends[1]);
	for (ssize_t n;
	     used < PATH_MAX - 1 && (n = read(ends[0], line + used, PATH_MAX - 1 - used)) != 0;)
		if (n > 0)
			used += (size_t)n;
		else if (errno != EINTR)
			break;
	close(ends[0]);
	line[used] = '\0';
	line[strcspn(line, "\n")] = '\0';
	while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	if (status == 0)
		return 0;
	if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_CODE_NOT_FOUND)
		return error_set(err, EXIT_CODE_FAILED, "--snapshot: git is not installed");
	return git_failed(err, argv[first], said);
}

/* ---- the copy ----------------------------------------------------------------------------- */

static int cannot(struct error *err, const char *path)
{
	return error_set(err, EXIT_CODE_FAILED, "--snapshot: cannot write %.300s: %s", path,
			 strerrordesc_np(errno));
}

static int directory_make(char ret[static PATH_MAX], struct error *err)
{
	int rc = user_dir_cache("snapshots", ret);

	if (rc < 0 && !*ret)
		return error_set(err, EXIT_CODE_FAILED, "--snapshot: HOME is not set");
	return rc < 0 ? error_set(err, EXIT_CODE_FAILED, "--snapshot: cannot write %.300s: %s", ret,
				  user_dir_why(rc))
		      : 0;
}

/* An index of the tracked files as they are in the tree now, beside the tree's own, which stays. */
static int tree_write(const char *top, const char *index, char tree[static PATH_MAX],
		      struct error *err)
{
	char own[PATH_MAX], ignored[PATH_MAX];
	int rc = git(err, NULL, own, "-C", top, "rev-parse", "--path-format=absolute", "--git-path",
		     "index", NULL);

	if (rc == 0)
		rc = git(err, index, ignored, "-C", top, "read-tree", "--empty", NULL);
	/* With the files that were added and not committed yet: what the tree's own index knows. */
	cleanup_close int from = rc == 0 ? open(own, O_RDONLY | O_CLOEXEC) : -1;
	cleanup_close int to =
		from >= 0 ? open(index, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
	char block[65536];
	for (ssize_t n; to >= 0 && (n = read(from, block, sizeof(block))) > 0;)
		if (write_all(to, block, (size_t)n) < 0)
			return cannot(err, index);
	if (rc == 0)
		rc = git(err, index, ignored, "-C", top, "add", "--update", NULL);
	return rc < 0 ? rc : git(err, index, tree, "-C", top, "write-tree", NULL);
}

/* Put in place whole, so that a copy that is there can be used. */
static int files_copy(const char *top, const char *index, const char *dir, const char *tree,
		      char to[static PATH_MAX], struct error *err)
{
	char fresh[PATH_MAX + 16], prefix[PATH_MAX + 32], ignored[PATH_MAX];

	if (snprintf(to, PATH_MAX, "%s/%s", dir, tree) >= PATH_MAX - 32)
		return error_set(err, EXIT_CODE_FAILED, "--snapshot: the path is too long");
	if (access(to, F_OK) == 0)
		return 0;
	snprintf(fresh, sizeof(fresh), "%s/new-XXXXXX", dir);
	if (!mkdtemp(fresh))
		return cannot(err, fresh);
	snprintf(prefix, sizeof(prefix), "--prefix=%s/", fresh);
	int rc = git(err, index, ignored, "-C", top, "checkout-index", "--all", "--force", prefix,
		     NULL);
	if (rc < 0)
		return rc;
	/* Another one may have made it meanwhile. */
	return rename(fresh, to) < 0 && access(to, F_OK) < 0 ? cannot(err, to) : 0;
}

/* The command's directory may have no tracked file, as one for results: the copy has it, too. */
static int below_make(const char *copy, char *below, char ret[static PATH_MAX], struct error *err)
{
	for (char *slash = strchr(below, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		int length = snprintf(ret, PATH_MAX, "%s/%s", copy, below);
		*slash = '/';
		if (length >= PATH_MAX)
			break;
		if (mkdir(ret, 0700) < 0 && errno != EEXIST)
			return cannot(err, ret);
	}
	return snprintf(ret, PATH_MAX, "%s/%s", copy, below) < PATH_MAX
		       ? 0
		       : error_set(err, EXIT_CODE_FAILED, "--snapshot: the path is too long");
}

int snapshot_make(char ret[static PATH_MAX], struct error *err)
{
	char top[PATH_MAX], below[PATH_MAX], dir[PATH_MAX], tree[PATH_MAX], index[PATH_MAX],
		to[PATH_MAX];
	int rc = git(err, NULL, top, "rev-parse", "--show-toplevel", NULL);

	if (rc < 0 || (rc = git(err, NULL, below, "rev-parse", "--show-prefix", NULL)) < 0 ||
	    (rc = directory_make(dir, err)) < 0)
		return rc;
	if (snprintf(index, sizeof(index), "%s/index-%d", dir, (int)getpid()) >= PATH_MAX)
		return error_set(err, EXIT_CODE_FAILED, "--snapshot: the path is too long");
	rc = tree_write(top, index, tree, err);
	if (rc == 0)
		rc = files_copy(top, index, dir, tree, to, err);
	(void)unlink(index);
	return rc < 0 ? rc : below_make(to, below, ret, err);
}
