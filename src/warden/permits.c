#include "warden/permits.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/file.h"
#include "proto/shim.h"
#include "warden/rights.h"

int permits_add(struct permits *p, uint64_t number, uint32_t attempt, bool again)
{
	int ends[2];

	if (p->count == PERMITS_MOST)
		return -EAGAIN;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		return -errno;
	p->permit[p->count++] = (struct permit){
		.fd = ends[0], .number = number, .attempt = attempt, .again = again};
	return ends[1];
}

/* A shim that has asked says nothing more, and hears of the result. */
unsigned permits_poll(const struct permits *p, struct pollfd fds[static PERMITS_MOST])
{
	for (unsigned i = 0; i < p->count; i++)
		fds[i] = (struct pollfd){.fd = p->permit[i].state == PERMIT_WAITS ? p->permit[i].fd
										  : -1,
					 .events = POLLIN};
	return p->count;
}

static bool asks(const struct permit *permit, struct rights *rights)
{
	char word = 0;

	return recv(permit->fd, &word, 1, MSG_DONTWAIT) == 1 && word == SHIM_ASKS &&
	       rights_check(rights, permit->number, permit->attempt, permit->again) == 0 &&
	       rights_spend(rights, permit->number, permit->attempt) == 0;
}

void permits_run(struct permits *p, struct rights *rights,
		 const struct pollfd fds[static PERMITS_MOST])
{
	unsigned kept = 0;

	for (unsigned i = 0; i < p->count; i++) {
		struct permit *permit = &p->permit[i];

		if (fds[i].revents && asks(permit, rights))
			permit->state = PERMIT_ASKED;
		else if (fds[i].revents)
			close_fd(&permit->fd);
		if (permit->fd >= 0)
			p->permit[kept++] = *permit;
	}
	p->count = kept;
}

bool permits_ask(const struct permits *p)
{
	for (unsigned i = 0; i < p->count; i++)
		if (p->permit[i].state == PERMIT_ASKED)
			return true;
	return false;
}

void permits_syncing(struct permits *p)
{
	for (unsigned i = 0; i < p->count; i++)
		if (p->permit[i].state == PERMIT_ASKED)
			p->permit[i].state = PERMIT_SYNCING;
}

void permits_synced(struct permits *p, struct rights *rights, int rc)
{
	const char may = SHIM_MAY;
	unsigned kept = 0;

	for (unsigned i = 0; i < p->count; i++) {
		struct permit *permit = &p->permit[i];

		if (permit->state == PERMIT_SYNCING && rc == -EAGAIN)
			permit->state = PERMIT_ASKED;
		if (permit->state != PERMIT_SYNCING) {
			p->permit[kept++] = *permit;
			continue;
		}
		/* Its right may have ended meanwhile. */
		if (rc == 0 && rights_check(rights, permit->number, permit->attempt, true) == 0 &&
		    rights_let(rights, permit->number, permit->attempt) == 0)
			(void)send(permit->fd, &may, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
		close_fd(&permit->fd);
	}
	p->count = kept;
}
