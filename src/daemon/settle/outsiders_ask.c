#include "daemon/settle/outsiders_ask.h"

#include <stdlib.h>

#include "daemon/host/privileges.h"

struct asked {
	struct outsiders *outsiders;
	struct process_id process;
	int signal; /* 0: it was a look */
};

static void on_answer(void *context, int rc, const void *answer, int *fd)
{
	struct asked *asked = context;

	if (asked->signal)
		outsider_signalled(asked->outsiders, asked->process, asked->signal, rc);
	else
		outsider_looked(asked->outsiders, asked->process, rc, rc == 0 ? answer : NULL);
	free(asked);
}

static bool ask(struct privileges *privileges, const struct asked *what,
		const struct warden_question *question)
{
	struct asked *asked = malloc(sizeof(*asked));

	if (!asked)
		return false;
	*asked = *what;
	if (warden_link_ask(&privileges->warden, question, on_answer, free, asked))
		return true;
	free(asked);
	return false;
}

bool outsider_look(struct privileges *privileges, struct outsiders *outsiders, uid_t uid,
		   struct process_id process)
{
	const struct warden_process request = {.pid = process.pid, .birth = process.birth};

	return ask(privileges, &(struct asked){.outsiders = outsiders, .process = process},
		   &(struct warden_question){.operation = WARDEN_SLICE_LOOK,
					     .owner = uid,
					     .request = &request,
					     .size = sizeof(request),
					     .answer_size = sizeof(struct warden_marks)});
}

bool outsider_signal(struct privileges *privileges, struct outsiders *outsiders,
		     struct process_id process, const struct warden_marks *marks, int signal)
{
	const struct warden_outside request = {.signal = {.pid = process.pid,
							  .birth = process.birth,
							  .signal = signal,
							  .uid = marks->uid},
					       .marks = *marks};

	return ask(privileges,
		   &(struct asked){.outsiders = outsiders, .process = process, .signal = signal},
		   &(struct warden_question){.operation = WARDEN_SIGNAL_OUTSIDE,
					     .owner = marks->uid,
					     .request = &request,
					     .size = sizeof(request)});
}
