#include "core/pod_cgroup.h"

#include <string.h>

/* The length of a line, without its end. */
static size_t line_length(const char *line)
{
	return strcspn(line, "\n");
}

static const char *line_next(const char *line)
{
	line += line_length(line);
	return *line ? line + 1 : line;
}

/* "pod<UID>" of the driver cgroupfs, or "...-pod<UID>.slice" of the driver systemd. */
static bool names_pod(const char *name, size_t length)
{
	static const char slice[] = ".slice", infix[] = "-pod";
	const size_t tail = sizeof(slice) - 1;

	if (length > 3 && !strncmp(name, "pod", 3))
		return true;
	const char *found = memmem(name, length, infix, sizeof(infix) - 1);
	return found && length > tail && !strncmp(name + length - tail, slice, tail);
}

/* The length of a line up to its pod's cgroup, with the '/' behind that; 0: it names no pod. The
 * last name of a path is a container's, so no pod's. The last pod counts, as a cluster may run in a
 * pod of another cluster. */
static size_t pod_length(const char *line)
{
	size_t length = line_length(line), at = 0, found = 0;

	while (at < length && line[at] != '/')
		at++;
	while (at < length) {
		size_t begin = ++at;

		while (at < length && line[at] != '/')
			at++;
		if (at + 1 < length && names_pod(line + begin, at - begin))
			found = at + 1;
	}
	return found;
}

bool pod_cgroup_find(const char *text, char *ret, size_t size)
{
	size_t used = 0;

	for (const char *line = text; *line; line = line_next(line)) {
		size_t length = pod_length(line);

		if (!length)
			continue;
		if (used + length + 2 > size)
			return false;
		memcpy(ret + used, line, length);
		used += length;
		ret[used++] = '\n';
	}
	if (used)
		ret[used] = '\0';
	return used > 0;
}

static bool has_line(const char *text, const char *head, size_t length)
{
	for (const char *line = text; *line; line = line_next(line))
		if (line_length(line) > length && !strncmp(line, head, length))
			return true;
	return false;
}

bool pod_cgroup_holds(const char *pod, const char *text)
{
	for (const char *line = pod; *line; line = line_next(line))
		if (!has_line(text, line, line_length(line)))
			return false;
	return *pod;
}
