#include "front/environment.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static bool same_name(const char *a, const char *b)
{
	size_t length = strcspn(a, "=") + 1;

	return strncmp(a, b, length) == 0;
}

/* A second array of the same strings, but for the one. Its pages stay: somebody may be reading. */
static char **copy_with(char **from, char *entry)
{
	size_t count = 0, at = 0;

	while (from && from[count])
		count++;
	char **copy = mmap(NULL, (count + 2) * sizeof(*copy), PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (copy == MAP_FAILED)
		return NULL;
	for (size_t i = 0; i < count; i++)
		if (!same_name(entry, from[i]))
			copy[at++] = from[i];
	copy[at] = entry;
	return copy;
}

int environment_swap_begin(struct environment_swap *swap, char *entry)
{
	int r = 0;

	lock_acquire(&swap->lock);
	if (swap->inside == 0) {
		swap->before = environ;
		swap->entry = entry;
		swap->during = copy_with(environ, entry);
		if (swap->during)
			environ = swap->during;
		else
			r = -ENOMEM;
	}
	if (r == 0)
		swap->inside++;
	lock_release(&swap->lock);
	return r;
}

/* The environment is a third array by now, made by somebody's setenv from ours. */
static void put_back(struct environment_swap *swap)
{
	char **at = environ, **old = swap->before;

	while (old && *old && !same_name(swap->entry, *old))
		old++;
	while (at && *at && *at != swap->entry)
		at++;
	if (!at || !*at)
		return;
	if (old && *old) {
		*at = *old;
		return;
	}
	for (; *at; at++)
		at[0] = at[1];
}

void environment_swap_end(struct environment_swap *swap)
{
	lock_acquire(&swap->lock);
	if (--swap->inside == 0) {
		if (environ == swap->during)
			environ = swap->before;
		else
			put_back(swap);
	}
	lock_release(&swap->lock);
}
