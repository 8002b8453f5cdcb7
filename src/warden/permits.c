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

unsigned permits_poll(const struct permits *p, struct pollfd fds[static PERMITS_MOST])
{
	for (unsigned i = 0; i < p->count; i++)
		fds[i] = (struct pollfd){.fd = p->permit[i].fd, .events = POLLIN};
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
	const char may = SHIM_MAY;
	unsigned kept = 0, asking = 0;

	for (unsigned i = 0; i < p->count; i++)
		if (fds[i].revents)
			asking += p->permit[i].asks = asks(&p->permit[i], rights);
	bool spent = asking && rights_sync(rights) == 0;
	for (unsigned i = 0; i < p->count; i++) {
		struct permit *permit = &p->permit[i];

		if (!fds[i].revents) {
			p->permit[kept++] = *permit;
			continue;
		}
		if (spent && permit->asks &&
		    rights_let(rights, permit->number, permit->attempt) == 0)
			(void)send(permit->fd, &may, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
		close_fd(&permit->fd);
	}
	p->count = kept;
}
