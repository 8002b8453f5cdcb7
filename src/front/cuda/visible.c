#include "front/cuda/visible.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

/* Devices of the slice that a UUID, or the beginning of one, names: -1 unless it is exactly one. */
static int find_uuid(const struct ledger_limits *limits, const char *text, size_t length)
{
	int found = -1;

	for (uint32_t i = 0; i < ledger_gpu_count(limits); i++) {
		const char *uuid = limits->gpu[i].uuid_text;

		if (strnlen(uuid, sizeof(limits->gpu[i].uuid_text)) < length ||
		    strncasecmp(uuid, text, length) != 0)
			continue;
		if (found >= 0)
			return -1;
		found = (int)i;
	}
	return found;
}

/* The driver reads a number as strtol() does: with a sign, and whatever follows it ("1gpu2,2ampere"
 * is "1,2" by torch.cuda's own reader of this variable). */
static int find_index(const struct ledger_limits *limits, const char *text, size_t length)
{
	size_t sign = length && (*text == '+' || *text == '-'), i = sign;
	uint32_t index = 0;

	for (; i < length && isdigit((unsigned char)text[i]) && index <= LEDGER_GPUS_MAX; i++)
		index = index * 10 + (uint32_t)(text[i] - '0');
	if (i == sign || (index && *text == '-'))
		return -1;
	return index < ledger_gpu_count(limits) ? (int)index : -1;
}

static int find_entry(const struct ledger_limits *limits, const char *text, size_t length)
{
	if (length > 4 && (strncasecmp(text, "GPU-", 4) == 0 || strncasecmp(text, "MIG-", 4) == 0))
		return find_uuid(limits, text, length);
	return find_index(limits, text, length);
}

static void append(char *buf, const struct ledger_limit *gpu)
{
	size_t used = strlen(buf), length = strnlen(gpu->uuid_text, sizeof(gpu->uuid_text) - 1);

	if (used + length + 2 > VISIBLE_SIZE)
		return;
	if (used)
		buf[used++] = ',';
	memcpy(buf + used, gpu->uuid_text, length);
	buf[used + length] = '\0';
}

void visible_list(const struct ledger_limits *limits, const char *user, char buf[VISIBLE_SIZE])
{
	buf[0] = '\0';
	for (uint32_t i = 0; !user && i < ledger_gpu_count(limits); i++)
		append(buf, &limits->gpu[i]);
	while (user && *user) {
		size_t length = strcspn(user, ","), spaces = strspn(user, " \t");
		const char *next = user + length + (user[length] == ',');

		spaces = spaces < length ? spaces : length;
		user += spaces;
		length -= spaces;
		while (length && isspace((unsigned char)user[length - 1]))
			length--;
		int index = find_entry(limits, user, length);
		if (index < 0)
			return;
		append(buf, &limits->gpu[index]);
		user = next;
	}
}
