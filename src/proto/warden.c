#include "proto/warden.h"

#include <signal.h>

/* The kernel's own bound on PIDs. */
#define PID_MOST (1 << 22)

bool warden_head_fits(const struct warden_head *head, size_t size)
{
	return size >= sizeof(*head) && head->magic == WARDEN_MAGIC &&
	       head->size <= WARDEN_SIZE_MAX && size == sizeof(*head) + head->size &&
	       head->error >= 0 && !head->reserved;
}

bool warden_answer_fits(const struct warden_head *head, size_t size, size_t wanted)
{
	return warden_head_fits(head, size) && head->size == (head->error ? 0 : wanted);
}

bool warden_names_process(int32_t pid, uint64_t birth)
{
	return pid > 1 && pid <= PID_MOST && birth;
}

bool warden_signal_fits(const struct warden_signal *signal)
{
	/* (uid_t)-1 leaves a user as it is, where it is set. */
	return warden_names_process(signal->pid, signal->birth) && signal->uid != UINT32_MAX &&
	       !signal->reserved && (signal->signal == SIGTERM || signal->signal == SIGKILL);
}
