#include "cli/job/job_input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "cli/user_dir.h"

static bool is_there(void)
{
	const dev_t null = makedev(1, 3);
	struct stat st;

	return fstat(STDIN_FILENO, &st) == 0 && !(S_ISCHR(st.st_mode) && st.st_rdev == null);
}

static int fifo_make(struct job_input *input)
{
	char dir[PATH_MAX];
	int rc = user_dir_cache("input", dir);

	if (rc < 0)
		return rc;
	if (snprintf(input->path, PATH_MAX, "%s/%d.%llx", dir, (int)getpid(),
		     (unsigned long long)now_monotonic_ns()) >= PATH_MAX)
		return -ENAMETOOLONG;
	if (mkfifo(input->path, 0600) < 0)
		return -errno;
	input->in = open(input->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	input->out = open(input->path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	return input->in < 0 || input->out < 0 ? -errno : 0;
}

void job_input_begin(struct job_input *input)
{
	*input = (struct job_input){.in = -1, .out = -1};
	int rc = is_there() ? fifo_make(input) : 0;

	if (rc == 0)
		return;
	fprintf(stderr, "carve: note: the job has no standard input: %s: %s\n",
		*input->path ? input->path : "~/.cache/carve", user_dir_why(rc));
	job_input_end(input);
}

/* A terminal belongs to the job of the shell that is in the foreground: any other that reads is
 * stopped. */
static bool may_be_read(void)
{
	pid_t foreground = tcgetpgrp(STDIN_FILENO);

	return foreground < 0 || foreground == getpgrp();
}

struct pollfd job_input_wanted(const struct job_input *input)
{
	if (input->out >= 0 && input->held)
		return (struct pollfd){.fd = input->out, .events = POLLOUT};
	return (struct pollfd){.fd = input->out >= 0 && may_be_read() ? STDIN_FILENO : -1,
			       .events = POLLIN};
}

void job_input_pass(struct job_input *input)
{
	if (!input->held) {
		ssize_t n = read(STDIN_FILENO, input->part, sizeof(input->part));

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0)
			close_fd(&input->out);
		input->from = 0;
		input->held = n > 0 ? (size_t)n : 0;
	}
	if (input->out < 0)
		return;
	ssize_t n = write(input->out, input->part + input->from, input->held);
	if (n < 0)
		return;
	input->from += (size_t)n;
	input->held -= (size_t)n;
}

void job_input_end(struct job_input *input)
{
	close_fd(&input->in);
	close_fd(&input->out);
	if (*input->path)
		(void)unlink(input->path);
	input->path[0] = '\0';
}
