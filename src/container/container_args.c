#include "container/container_args.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"

/* Options of `run` of podman 5 and docker 28 that take no value. All others take one, in the same
 * word after "=", or in the next. */
static const char *const flags[] = {
	"detach",
	"disable-content-trust",
	"env-host",
	"help",
	"http-proxy",
	"init",
	"interactive",
	"no-healthcheck",
	"no-hostname",
	"no-hosts",
	"oom-kill-disable",
	"passwd",
	"privileged",
	"publish-all",
	"quiet",
	"read-only",
	"read-only-tmpfs",
	"remote",
	"replace",
	"rm",
	"rmi",
	"rootfs",
	"sig-proxy",
	"syslog",
	"tls-verify",
	"transient-store",
	"tty",
	"unsetenv-all",
	"use-api-socket",
};

/* Likewise of `exec`, `run` and `shell` of apptainer 1.4. */
static const char *const apptainer_flags[] = {
	"allow-setuid", "cleanenv",      "compat",           "contain",
	"containall",   "disable-cache", "docker-login",     "fakeroot",
	"help",         "ipc",           "keep-privs",       "net",
	"no-eval",      "no-home",       "no-https",         "no-init",
	"no-pid",       "no-privs",      "no-umask",         "nohttps",
	"nv",           "nvccli",        "oom-kill-disable", "passphrase",
	"pid",          "rocm",          "sharens",          "unsquash",
	"userns",       "uts",           "writable",         "writable-tmpfs",
};

/* Likewise of the runtimes themselves, before `run`. */
static const char *const global_flags[] = {
	"build-config",    "debug",   "help",    "nocolor", "noout", "quiet",
	"remote",          "silent",  "syslog",  "tls",     "trace", "tlsverify",
	"transient-store", "verbose", "version",
};

static const struct {
	const char *const *flags;
	size_t count;
	const char *letters; /* short options without a value */
} syntaxes[] = {
	[CONTAINER_SYNTAX_OCI] = {flags, ARRAY_SIZE(flags), "ditqP"},
	[CONTAINER_SYNTAX_APPTAINER] = {apptainer_flags, ARRAY_SIZE(apptainer_flags), "ecCfhinpuw"},
	[CONTAINER_SYNTAX_PODMAN_GLOBAL] = {global_flags, ARRAY_SIZE(global_flags), "hrv"},
	[CONTAINER_SYNTAX_DOCKER_GLOBAL] = {global_flags, ARRAY_SIZE(global_flags), "hDv"},
	[CONTAINER_SYNTAX_APPTAINER_GLOBAL] = {global_flags, ARRAY_SIZE(global_flags), "dhqsv"},
};

static const struct {
	const char *runtime;
	enum container_syntax syntax;
} globals[] = {
	{"podman", CONTAINER_SYNTAX_PODMAN_GLOBAL},
	{"docker", CONTAINER_SYNTAX_DOCKER_GLOBAL},
	{"apptainer", CONTAINER_SYNTAX_APPTAINER_GLOBAL},
};

/* Options of `run` and `exec` of these runtimes that take a value, for lists of names. */
static const char *const options_valued[] = {
	"add-caps",
	"add-host",
	"annotation",
	"app",
	"apply-cgroups",
	"arch",
	"attach",
	"authfile",
	"bind",
	"blkio-weight",
	"blkio-weight-device",
	"cap-add",
	"cap-drop",
	"cert-dir",
	"cgroup-conf",
	"cgroup-parent",
	"cgroupns",
	"cgroups",
	"chrootdirs",
	"cidfile",
	"conmon-pidfile",
	"cpu-count",
	"cpu-percent",
	"cpu-period",
	"cpu-quota",
	"cpu-rt-period",
	"cpu-rt-runtime",
	"cpu-shares",
	"cpus",
	"cpuset-cpus",
	"cpuset-mems",
	"creds",
	"cwd",
	"decryption-key",
	"detach-keys",
	"device",
	"device-cgroup-rule",
	"device-read-bps",
	"device-read-iops",
	"device-write-bps",
	"device-write-iops",
	"dns",
	"dns-opt",
	"dns-option",
	"dns-search",
	"docker-host",
	"domainname",
	"drop-caps",
	"entrypoint",
	"env",
	"env-file",
	"env-merge",
	"expose",
	"fusemount",
	"gidmap",
	"gpus",
	"group-add",
	"group-entry",
	"health-cmd",
	"health-interval",
	"health-log-destination",
	"health-max-log-count",
	"health-max-log-size",
	"health-on-failure",
	"health-retries",
	"health-start-interval",
	"health-start-period",
	"health-startup-cmd",
	"health-startup-interval",
	"health-startup-retries",
	"health-startup-success",
	"health-startup-timeout",
	"health-timeout",
	"home",
	"hostname",
	"hosts-file",
	"hostuser",
	"image-volume",
	"init-path",
	"intel-rdt-closid",
	"io-maxbandwidth",
	"io-maxiops",
	"ip",
	"ip6",
	"isolation",
	"kernel-memory",
	"label",
	"label-file",
	"link",
	"link-local-ip",
	"log-driver",
	"log-opt",
	"mac-address",
	"memory",
	"memory-reservation",
	"memory-swap",
	"memory-swappiness",
	"mount",
	"name",
	"net-alias",
	"netns-path",
	"network",
	"network-alias",
	"network-args",
	"no-mount",
	"no-tmp-sandbox",
	"oom-score-adj",
	"os",
	"overlay",
	"passwd-entry",
	"pem-path",
	"personality",
	"pidfile",
	"pids-limit",
	"platform",
	"pod",
	"pod-id-file",
	"preserve-fds",
	"publish",
	"pull",
	"pwd",
	"rdt-class",
	"requires",
	"restart",
	"retry",
	"retry-delay",
	"runtime",
	"scratch",
	"sdnotify",
	"seccomp-policy",
	"secret",
	"security",
	"security-opt",
	"shm-size",
	"shm-size-systemd",
	"signature-policy",
	"stop-signal",
	"stop-timeout",
	"storage-driver",
	"storage-opt",
	"subgidname",
	"subuidname",
	"sysctl",
	"systemd",
	"timeout",
	"tmp-sandbox",
	"tmpfs",
	"tz",
	"uidmap",
	"ulimit",
	"umask",
	"underlay",
	"unsetenv",
	"user",
	"variant",
	"volume",
	"volume-driver",
	"volumes-from",
	"workdir",
};

/* podman's own that also stand behind `run`, and say which containers there are. */
static const char *const storage[] = {
	"connection", "identity",       "imagestore",  "module", "namespace",
	"remote",     "root",           "runroot",     "tmpdir", "transient-store",
	"url",        "storage-driver", "storage-opt",
};

/* carve's own: with a value, and without. --gpus and --name are the runtime's. */
static const char *const valued[] = {
	"vram",     "gpu-memory",      "gpu",     "mig-profile", "mig",  "gpu-compute", "gpu-ids",
	"wait-for", "session-timeout", "session", "priority",    "host", "reserve",
};
static const char *const unvalued[] = {"vram-strict", "ephemeral", "json"};

void words_add(struct words *w, const char *format, ...)
{
	va_list args;
	char *word = NULL;

	if (w->count + 1 >= w->room) {
		w->room = w->room ? 2 * w->room : 32;
		w->list = realloc(w->list, w->room * sizeof(*w->list));
	}
	va_start(args, format);
	if (!w->list || vasprintf(&word, format, args) < 0)
		abort();
	va_end(args);
	w->list[w->count++] = word;
	w->list[w->count] = NULL;
}

void words_free(struct words *w)
{
	for (size_t i = 0; i < w->count; i++)
		free(w->list[i]);
	free(w->list);
	*w = (struct words){0};
}

static bool is_in(const char *const *list, size_t count, const char *name, size_t length)
{
	for (size_t i = 0; i < count; i++)
		if (strlen(list[i]) == length && !strncmp(list[i], name, length))
			return true;
	return false;
}

bool container_args_known(const char *name, size_t length)
{
	return (length == 1 && isalpha((unsigned char)*name)) ||
	       is_in(flags, ARRAY_SIZE(flags), name, length) ||
	       is_in(apptainer_flags, ARRAY_SIZE(apptainer_flags), name, length) ||
	       is_in(options_valued, ARRAY_SIZE(options_valued), name, length);
}

bool container_args_takes_next(const char *word, enum container_syntax syntax)
{
	if (word[1] != '-') {
		/* -it, -p8080:80, -e NAME: a letter with a value ends the word, or has the rest of
		 * it. */
		const char *letter = word + 1 + strspn(word + 1, syntaxes[syntax].letters);

		return *letter && !letter[1];
	}
	return !strchr(word, '=') &&
	       !is_in(syntaxes[syntax].flags, syntaxes[syntax].count, word + 2, strlen(word + 2));
}

bool container_syntax_global(const char *runtime, enum container_syntax *ret)
{
	for (size_t i = 0; i < ARRAY_SIZE(globals); i++)
		if (!strcmp(globals[i].runtime, runtime)) {
			*ret = globals[i].syntax;
			return true;
		}
	return false;
}

/* Takes one of carve's options; returns how many words it was, 0: it is none, or negative. */
static int take_slice(char **at, struct container_args *ret, struct error *err)
{
	const char *name = *at + 2, *equals = strchr(name, '=');
	size_t length = equals ? (size_t)(equals - name) : strlen(name);

	if (strncmp(*at, "--", 2) != 0)
		return 0;
	if (!equals && is_in(unvalued, ARRAY_SIZE(unvalued), name, length)) {
		words_add(&ret->slice, "%s", *at);
		return 1;
	}
	if (!is_in(valued, ARRAY_SIZE(valued), name, length))
		return 0;
	if (!equals && !at[1])
		return error_set(err, EXIT_CODE_USAGE, "%s needs a value", *at);
	words_add(&ret->slice, "%s", *at);
	if (!equals)
		words_add(&ret->slice, "%s", at[1]);
	return equals ? 1 : 2;
}

static bool is_storage(const char *word)
{
	return !strncmp(word, "--", 2) &&
	       is_in(storage, ARRAY_SIZE(storage), word + 2, strcspn(word + 2, "="));
}

static int take_option(char **at, enum container_syntax syntax, struct container_args *ret,
		       struct error *err)
{
	bool two = container_args_takes_next(*at, syntax);

	if (two && !at[1])
		return error_set(err, EXIT_CODE_USAGE, "%s needs a value", *at);
	if (!strncmp(*at, "--cidfile", 9))
		ret->cid_file = (*at)[9] == '=' ? *at + 10 : at[1];
	if (!strncmp(*at, "--pidfile", 9))
		ret->pid_file = (*at)[9] == '=' ? *at + 10 : at[1];
	bool storage_too = is_storage(*at);
	for (int i = 0; i < (two ? 2 : 1); i++) {
		words_add(&ret->options, "%s", at[i]);
		if (storage_too)
			words_add(&ret->everywhere, "%s", at[i]);
	}
	return two ? 2 : 1;
}

/* Whether the next word is the value of this one, be it carve's option or the runtime's. */
static bool global_takes_next(const char *word, enum container_syntax syntax)
{
	const char *name = word + 2;

	if (!strncmp(word, "--", 2) && is_in(unvalued, ARRAY_SIZE(unvalued), name, strlen(name)))
		return false;
	return container_args_takes_next(word, syntax);
}

size_t container_args_global_count(char **words, enum container_syntax syntax)
{
	size_t i = 0;

	while (words[i] && words[i][0] == '-' && words[i][1])
		i += global_takes_next(words[i], syntax) && words[i + 1] ? 2 : 1;
	return i;
}

static int global_read(char **at, size_t count, enum container_syntax syntax,
		       struct container_args *ret, struct error *err)
{
	for (char **end = at + count; at < end;) {
		int taken = take_slice(at, ret, err);

		if (taken < 0)
			return taken;
		for (int i = 0; taken == 0 && i <= container_args_takes_next(*at, syntax); i++) {
			words_add(&ret->global, "%s", at[i]);
			words_add(&ret->everywhere, "%s", at[i]);
		}
		at += taken ? taken : 1 + container_args_takes_next(*at, syntax);
	}
	return 0;
}

const char *container_args_own(size_t i)
{
	return i < ARRAY_SIZE(valued) ? valued[i] : NULL;
}

/* `before`: the options that stand there instead. An option that is not known as one without a
 * value takes the next word, so a misspelt one takes the image. */
static int image_missing(const struct words *before, bool took, struct error *err)
{
	if (took)
		error_set(err, EXIT_CODE_USAGE,
			  "the image is missing: '%.100s' was taken for the value of %.100s",
			  before->list[before->count - 1], before->list[before->count - 2]);
	else
		error_set(err, EXIT_CODE_USAGE, "the image is missing");
	return -EXIT_CODE_USAGE;
}

int container_args_read(char **global, size_t global_count, enum container_syntax global_syntax,
			char **given, enum container_syntax syntax, struct container_args *ret,
			struct error *err)
{
	char **at = given;
	bool took = false;
	int rc = global_read(global, global_count, global_syntax, ret, err);

	if (rc < 0)
		return rc;

	while (*at && **at == '-' && strcmp(*at, "--") != 0) {
		int taken = take_slice(at, ret, err);

		took = taken == 0 && container_args_takes_next(*at, syntax);
		if (taken == 0)
			taken = take_option(at, syntax, ret, err);
		if (taken < 0)
			return taken;
		at += taken;
	}
	if (*at && !strcmp(*at, "--"))
		at++;
	ret->image = at;
	return *at ? 0 : image_missing(&ret->options, took, err);
}

void container_args_free(struct container_args *args)
{
	words_free(&args->slice);
	words_free(&args->global);
	words_free(&args->options);
	words_free(&args->everywhere);
}
