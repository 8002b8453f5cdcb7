#include "integrations/oci/precreate.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/process_share.h"
#include "integrations/oci/config.h"
#include "integrations/oci/devices.h"
#include "integrations/oci/splice.h"

/* How long, and how often, it is looked whether the hook has registered the container. */
#define LOOKS 600
#define LOOK_EVERY_MS 100

/* ---- its session -------------------------------------------------------------------------- */

static json_t *environment_list(void)
{
	json_t *list = json_array();

	for (char **variable = environ; *variable; variable++)
		json_array_append_new(list, json_string(*variable));
	return list;
}

/* The session that the container is to have; NULL: none. *session points into the configuration. */
static json_t *wanted_find(struct oci_session *session, json_t *config)
{
	struct oci_container container = {0};
	struct error ignored = {0};
	json_t *wanted = NULL;

	if (oci_podman_container(config, &container) &&
	    oci_config_parse(config, &container, &ignored) == 0)
		(void)oci_config_wanted(&container, config, session, &wanted, &ignored);
	oci_container_clear(&container);
	return wanted;
}

/* Replaces *text where the session can be had. */
static void text_extend(struct oci_session *session, json_t *wanted, char **text, size_t *size)
{
	struct error ignored = {0};
	json_t *environment = environment_list();

	if (oci_config_session(session, wanted, &ignored) == 0 &&
	    oci_config_add(environment, session, text, size, &ignored) < 0)
		oci_session_give(session);
	json_decref(environment);
}

static bool is_registered(const struct oci_session *session)
{
	char path[128];
	struct error ignored = {0};
	json_t *now = NULL, *pid;
	bool found = false;
	size_t i;

	snprintf(path, sizeof(path), "/v1/sessions/%.100s", oci_session_id(session));
	if (oci_daemon_call(&session->daemon, "GET", path, NULL, &now, &ignored) < 0)
		return true; /* it is gone, or nobody can tell */
	json_array_foreach(json_object_get(now, "command_pids"), i, pid)
	{
		found |= json_integer_value(pid) != getpid();
	}
	found |= json_array_size(json_object_get(now, "pids")) > 0;
	json_decref(now);
	return found;
}

/* The session is this process's until the hook has registered the container, or podman has ended.
 */
static void session_hold(const struct oci_session *session, int podman)
{
	struct pollfd ended = {.fd = podman, .events = POLLIN};
	bool over = false;

	for (int i = 0; i < LOOKS && !over && !is_registered(session); i++)
		over = poll(&ended, 1, LOOK_EVERY_MS) > 0;
}

/* ---- the hook ----------------------------------------------------------------------------- */

static char *text_read(size_t *ret_size)
{
	char *text = malloc(OCI_CONFIG_MAX);
	ssize_t n = text ? read_all(STDIN_FILENO, text, OCI_CONFIG_MAX) : -ENOMEM;

	*ret_size = n > 0 ? (size_t)n : 0;
	if (n >= 0 && n < OCI_CONFIG_MAX) {
		text[n] = '\0';
		return text;
	}
	free(text);
	return NULL;
}

static void detach(void)
{
	int null = open("/dev/null", O_RDWR);

	setsid();
	for (int fd = 0; fd < 3 && null >= 0; fd++)
		dup2(null, fd);
}

struct extension {
	struct oci_session *session;
	json_t *wanted;
	char *text;
	size_t size;
	int podman, done; /* a pidfd, and where the outcome is told */
};

/* A child writes the configuration, and stays to hold the session: podman waits for the parent. */
static int child_run(void *arg)
{
	struct extension *e = arg;

	text_extend(e->session, e->wanted, &e->text, &e->size);
	int rc = write_all(STDOUT_FILENO, e->text, e->size);
	detach();
	(void)write_all(e->done, &rc, sizeof(rc));
	close(e->done);
	if (rc == 0 && e->session->one_off && e->session->json)
		session_hold(e->session, e->podman);
	_exit(EXIT_CODE_OK);
}

/* Ends this process, whose memory is the child's. */
_Noreturn static void extended_write(struct oci_session *session, json_t *wanted, char *text,
				     size_t size)
{
	struct extension e = {.session = session,
			      .wanted = wanted,
			      .text = text,
			      .size = size,
			      .podman = (int)syscall(SYS_pidfd_open, getppid(), 0)};
	int fds[2], rc = -EIO;

	if (e.podman < 0 || pipe2(fds, O_CLOEXEC) < 0)
		_exit(EXIT_CODE_FAILED);
	e.done = fds[1];
	pid_t child = process_share(child_run, &e, false);
	close(fds[1]);
	if (child < 0 || read(fds[0], &rc, sizeof(rc)) != sizeof(rc))
		rc = -EIO;
	_exit(rc < 0 ? EXIT_CODE_FAILED : EXIT_CODE_OK);
}

static int unchanged_write(const char *text, size_t size)
{
	const char *lists;
	size_t at = oci_lists_missing(text, &lists);
	int rc = write_all(STDOUT_FILENO, text, at);

	if (rc == 0)
		rc = write_all(STDOUT_FILENO, lists, strlen(lists));
	return rc < 0 ? rc : write_all(STDOUT_FILENO, text + at, size - at);
}

int oci_precreate(void)
{
	struct oci_session session = {0};
	size_t size;
	cleanup_free char *text = text_read(&size);

	if (!text) {
		fputs("carve-hook: standard input is no configuration of a container\n", stderr);
		return EXIT_CODE_FAILED;
	}
	/* Without rules for devices a container needs no nodes before it is made. */
	json_t *config = oci_devices_have_rules() ? oci_config_load(text, size) : NULL;
	json_t *wanted = wanted_find(&session, config);
	if (wanted)
		extended_write(&session, wanted, text, size);
	json_decref(config);
	return unchanged_write(text, size) < 0 ? EXIT_CODE_FAILED : EXIT_CODE_OK;
}
