#include "daemon/events/notice.h"

#include <errno.h>
#include <string.h>

#include "base/clean_text.h"
#include "base/clock.h"
#include "base/error.h"
#include "daemon/events/events.h"
#include "daemon/events/events_private.h"
#include "daemon/host/bounded_root.h"
#include "daemon/host/owner.h"
#include "daemon/host/peer.h"
#include "daemon/host/unrecorded.h"

int notice_load(struct events *events)
{
	int rc = store_notice_get(events->store, &events->notice);

	return rc == -ENOENT ? 0 : rc;
}

/* Line by line: a line's end is the one control character that a notice may have. */
static void lines_clean(const char *text, char buf[static NOTICE_SIZE])
{
	char line[NOTICE_SIZE];
	size_t used = 0;

	buf[0] = '\0';
	while (*text) {
		size_t length = strcspn(text, "\n");

		memcpy(line, text, length);
		line[length] = '\0';
		clean_text(line, buf + used, NOTICE_SIZE - used);
		used += strlen(buf + used);
		text += length;
		if (*text && used + 1 < NOTICE_SIZE) {
			buf[used++] = '\n';
			buf[used] = '\0';
		}
		text += *text == '\n';
	}
}

int notice_set(struct events *events, const char *text, const struct peer *actor, struct error *err)
{
	struct store_notice notice = {
		.number = events->notice.number + 1,
		.at = now_realtime_ns(),
		.uid = actor->uid,
	};

	if (strlen(text) >= NOTICE_SIZE) {
		error_set(err, EXIT_CODE_USAGE, "the notice has %zu bytes; it can have %u",
			  strlen(text), NOTICE_SIZE - 1);
		return -EXIT_CODE_USAGE;
	}
	lines_clean(text, notice.text);
	int rc = store_notice_put(events->store, &notice);
	if (rc < 0)
		return unrecorded_set(err, "the notice cannot be recorded", rc);
	events_add(events, &(struct event){
				   .kind = EVENT_NOTICE_SET,
				   .actor = actor,
				   .subject = "notice",
				   .before = events->notice.text,
				   .after = notice.text,
				   .text = notice.text[0] ? NULL : "the notice was taken back",
			   });
	events->notice = notice;
	return 0;
}

const struct store_notice *notice_get(const struct events *events)
{
	return events->notice.text[0] ? &events->notice : NULL;
}

bool notice_is_due(const struct events *events, const struct peer *peer)
{
	bool seen = true;

	return events->notice.text[0] && !peer->of_pod && !uid_is_bounded_root(peer->uid) &&
	       store_notice_is_seen(events->store, owner_of(peer->uid), &seen) == 0 && !seen;
}

int notice_see(struct events *events, const struct peer *peer, int64_t number)
{
	if (number != events->notice.number || !notice_is_due(events, peer))
		return 0;
	return store_notice_see(events->store, owner_of(peer->uid));
}
