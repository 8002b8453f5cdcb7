/* Questions of the warden about programs that may be outside of slices. Loop thread only. */
#pragma once

#include <sys/types.h>

#include "base/process.h"
#include "proto/warden_outside.h"

struct outsiders;
struct privileges;

/* Told what the warden answered: 0, or -errno as proto/warden_outside.h has it; -EPIPE: there is no
 * warden any more. `marks`: of a look without an error; else NULL. */
void outsider_looked(struct outsiders *outsiders, struct process_id process, int rc,
		     const struct warden_marks *marks);
void outsider_signalled(struct outsiders *outsiders, struct process_id process, int number, int rc);

/* Has the warden look at a process, in its user's turn. False: it was not asked, for lack of memory
 * or as this user has too many requests. */
bool outsider_look(struct privileges *privileges, struct outsiders *outsiders, uid_t uid,
		   struct process_id process);
/* Likewise, has it signal the process, if that has these marks still. */
bool outsider_signal(struct privileges *privileges, struct outsiders *outsiders,
		     struct process_id process, const struct warden_marks *marks, int signal);
