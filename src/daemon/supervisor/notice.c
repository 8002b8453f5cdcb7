#include "daemon/supervisor/notice.h"

#include <string.h>

#include "base/macros.h"

static bool name_is_right(const char *name, size_t length)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789-.";

	if (!length || length >= SUPERVISOR_NAME_SIZE || !memchr(name, '.', length))
		return false;
	for (size_t i = 0; i < length; i++)
		if (!name[i] || !strchr(letters, name[i]))
			return false;
	return true;
}

static void status_take(const char *text, size_t length, struct notice *ret)
{
	length = MIN(length, sizeof(ret->status) - 1);
	for (size_t i = 0; i < length; i++)
		ret->status[i] = text[i];
	for (size_t i = 0; i < length; i++)
		if ((unsigned char)text[i] < ' ' || text[i] == '\x7f')
			ret->status[i] = '?';
	ret->status[length] = '\0';
}

static bool starts_with(const char *line, size_t length, const char *key, size_t *ret)
{
	*ret = strlen(key);
	return length >= *ret && !memcmp(line, key, *ret);
}

/* False: it makes the whole notice wrong. */
static bool line_read(const char *line, size_t length, struct notice *ret)
{
	const struct {
		const char *line;
		bool *ret;
	} flags[] = {
		{"READY=1", &ret->ready},           {"STOPPING=1", &ret->stopping},
		{"WATCHDOG=1", &ret->watchdog},     {"FDSTORE=1", &ret->stores},
		{"FDSTOREREMOVE=1", &ret->removes},
	};
	size_t key;

	for (size_t i = 0; i < ARRAY_SIZE(flags); i++)
		if (length == strlen(flags[i].line) && !memcmp(line, flags[i].line, length))
			*flags[i].ret = true;
	if (starts_with(line, length, "STATUS=", &key))
		status_take(line + key, length - key, ret);
	if (!starts_with(line, length, "FDNAME=", &key))
		return true;
	if (!name_is_right(line + key, length - key))
		return false;
	memset(ret->name, 0, sizeof(ret->name));
	memcpy(ret->name, line + key, length - key);
	return true;
}

bool notice_read(const char *text, size_t size, struct notice *ret)
{
	*ret = (struct notice){0};
	while (size) {
		const char *end = memchr(text, '\n', size);
		size_t length = end ? (size_t)(end - text) : size;

		if (!line_read(text, length, ret))
			return false;
		size -= length + (end != NULL);
		text += length + (end != NULL);
	}
	return !(ret->stores || ret->removes) || *ret->name;
}
