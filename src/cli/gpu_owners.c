#include "cli/gpu_owners.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>

#include "base/units.h"
#include "cli/moment.h"
#include "client/sessions.h"

/* Users on one GPU that a line names; the largest come first. */
#define OWNERS_SHOWN 8

static bool names_another(const json_t *owners)
{
	size_t i;
	json_t *one;

	json_array_foreach(owners, i, one)
	{
		const char *owner = session_text(one, "owner");

		if (*owner && !session_owner_is_me(owner))
			return true;
	}
	return false;
}

static void owner_print(const json_t *one)
{
	char size[UNITS_TEXT_SIZE], count[UNITS_TEXT_SIZE], since[MOMENT_SIZE];
	const char *owner = session_text(one, "owner");
	uint64_t sessions = session_number(one, "sessions");

	printf("%s %s", *owner ? owner : "others",
	       units_format_bytes(session_number(one, "vram_bytes"), size));
	if (sessions > 1)
		printf(" in %s", units_format_count(sessions, "session", count));
	if (*moment_long_text(moment_parse(session_text(one, "since")), time(NULL), since))
		printf(" since %s", since);
}

void gpu_owners_print(const json_t *gpus)
{
	size_t i, at;
	json_t *gpu, *one;

	json_array_foreach(gpus, i, gpu)
	{
		const json_t *owners = json_object_get(gpu, "owners");

		if (!names_another(owners))
			continue;
		printf("GPU %" PRIu64 " is held by ", session_number(gpu, "index"));
		json_array_foreach(owners, at, one)
		{
			if (at == OWNERS_SHOWN)
				break;
			fputs(at ? ", " : "", stdout);
			owner_print(one);
		}
		if (at < json_array_size(owners))
			printf(" and %zu more", json_array_size(owners) - at);
		putchar('\n');
	}
}
