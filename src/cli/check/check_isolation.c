#include "cli/check/check_isolation.h"

#include <stdio.h>
#include <unistd.h>

#include "base/error.h"
#include "client/sessions.h"
#include "slice/driver_find.h"
#include "slice/isolation.h"
#include "slice/places.h"
#include "slice/slice_env.h"

/* How `carve run` isolates here, and why not better. */
struct finding {
	bool inside; /* this is in a slice already */
	bool mount;  /* --isolation mount works */
	bool user;   /* through a user namespace */
	bool driver; /* there is one that a mount could lie over */
	enum isolation isolation;
	struct error why_no_mount;
};

static void mount_try(struct finding *finding)
{
	struct isolation_mount mount = {.user = true};
	struct driver_libs driver = {0};
	struct places places = {0};
	struct error *err = &finding->why_no_mount;

	finding->mount = places_find(&places, err) == 0 && driver_find(&driver, err) == 0 &&
			 isolation_mount_try(&mount, &places, &driver, err) == 0;
	finding->driver = driver.cuda[0] != '\0';
	finding->user = finding->mount && mount.user;
}

static struct finding isolation_find(void)
{
	struct finding finding = {.inside = slice_env_session() != NULL};
	bool mounted = isolation_mounted();

	if (finding.inside || mounted) {
		finding.inside = true;
		finding.mount = mounted;
		finding.isolation = mounted ? ISOLATION_MOUNT : ISOLATION_PRELOAD;
		return finding;
	}
	mount_try(&finding);
	/* Root's default does without where only a user namespace would do. */
	finding.isolation = geteuid() == 0 && finding.mount && !finding.user ? ISOLATION_MOUNT
									     : ISOLATION_PRELOAD;
	return finding;
}

static const char *why(const struct finding *finding)
{
	if (finding->inside)
		return "that of the slice which this is in";
	if (finding->isolation == ISOLATION_MOUNT)
		return "you are root and may mount";
	if (geteuid() != 0)
		return "you are not root";
	return finding->user ? "you are root, but may mount in a user namespace only"
			     : finding->why_no_mount.message;
}

static void add(json_t *lines, const char *text)
{
	json_array_append_new(lines, json_string(text));
}

static json_t *reaches(const struct finding *finding)
{
	json_t *lines = json_array();

	add(lines, "programs that load the driver by its name or path, or are linked with it");
	if (finding->isolation == ISOLATION_MOUNT)
		add(lines, "those started with an empty environment, set-user-ID, by su or sudo, "
			   "and plugins loaded with RTLD_DEEPBIND");
	return lines;
}

static json_t *not_reached(const struct finding *finding)
{
	json_t *lines = json_array();

	if (finding->isolation == ISOLATION_PRELOAD) {
		add(lines, "programs started with an empty environment (env -i, su -l, sudo) and "
			   "set-user-ID programs");
		add(lines, "plugins that are loaded with RTLD_DEEPBIND and open the driver by its "
			   "path, and programs with another LD_PRELOAD that do");
		add(lines, "programs that become another user and keep the environment (su, "
			   "setpriv): they get no GPU memory, as the slice is not that user's");
	}
	add(lines,
	    "programs that run elsewhere: in containers, chroots with a driver of their own, "
	    "and through services (docker, systemd-run, ssh)");
	return lines;
}

static json_t *advice(const struct finding *finding)
{
	json_t *lines = json_array();

	if (finding->inside || finding->isolation == ISOLATION_MOUNT)
		return lines;
	if (finding->user)
		add(lines, "`carve run --isolation mount` reaches them, in a user namespace: there "
			   "set-user-ID programs (su, sudo) gain no rights");
	if (geteuid() != 0)
		add(lines, "run as root, `carve run` reaches them");
	else if (!finding->mount && finding->driver)
		add(lines, "give the container CAP_SYS_ADMIN, or run carve outside of it");
	add(lines, "`carve session show` shows memory that they take; carved's over_policy can "
		   "end them");
	return lines;
}

json_t *check_isolation(void)
{
	const struct finding finding = isolation_find();

	return json_pack("{s:s,s:s,s:b,s:b,s:b,s:s,s:o,s:o,s:o}", "default",
			 finding.isolation == ISOLATION_MOUNT ? "mount" : "preload", "why",
			 why(&finding), "preload", 1, "mount", finding.mount, "user_namespace",
			 finding.user, "why_no_mount", finding.why_no_mount.message, "reaches",
			 reaches(&finding), "not_reached", not_reached(&finding), "advice",
			 advice(&finding));
}

static void lines_print(const char *what, const json_t *lines)
{
	size_t i;
	json_t *line;

	json_array_foreach(lines, i, line)
		printf("  %-13s %s\n", i ? "" : what, json_string_value(line));
}

void check_isolation_print(const json_t *isolation)
{
	const char *refusal = session_text(isolation, "why_no_mount");

	printf("isolation: %s: %s\n", session_text(isolation, "default"),
	       session_text(isolation, "why"));
	lines_print("reaches:", json_object_get(isolation, "reaches"));
	lines_print("not reached:", json_object_get(isolation, "not_reached"));
	lines_print("to do:", json_object_get(isolation, "advice"));
	if (*refusal && geteuid() != 0)
		printf("  %-13s %s\n", "no mount:", refusal);
}
