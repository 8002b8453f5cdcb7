#include "proto/warden_outside.h"

#define MARKS_ALL (WARDEN_MARK_ROOT * 2u - 1u)

/* A request names a process of one user that can be signalled, and no marks that spare it. */
bool warden_outside_fits(const void *request)
{
	const struct warden_outside *r = request;

	return warden_signal_fits(&r->signal) && r->signal.uid == r->marks.uid &&
	       !(r->marks.marks & (WARDEN_MARKS_SPARED | ~MARKS_ALL));
}
