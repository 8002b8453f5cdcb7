#include "front/environment.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/trust.h"
#include "front/slice_file.h"

/* Ours, which a mount namespace may carry instead. */
#define OWN_PREFIX "CARVE_"

static bool same_name(const char *a, const char *b)
{
	size_t length = strcspn(a, "=") + 1;

	return strncmp(a, b, length) == 0;
}

const char *environment_get(const char *name)
{
	size_t length = strlen(name);

	/* A program that a set-user-ID one starts has its caller's environment, and rights that are
	 * not the caller's: so the file comes first. */
	if (strncmp(name, OWN_PREFIX, strlen(OWN_PREFIX)) == 0 && slice_file_exists())
		return slice_file_get(name);
	if (process_is_privileged())
		return NULL;
	for (char **at = environ; at && *at; at++)
		if (strncmp(*at, name, length) == 0 && (*at)[length] == '=')
			return *at + length + 1;
	return NULL;
}

/* A second array of the same strings, but for the one. Its pages stay: somebody may be reading. */
static char **copy_with(char **from, char *entry, char **ret_old)
{
	size_t count = 0, at = 0;

	while (from && from[count])
		count++;
	char **copy = mmap(NULL, (count + 2) * sizeof(*copy), PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (copy == MAP_FAILED)
		return NULL;
	*ret_old = NULL;
	for (size_t i = 0; i < count; i++)
		if (same_name(entry, from[i]))
			*ret_old = from[i];
		else
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
		swap->during = copy_with(environ, entry, &swap->old);
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

/* Nobody changed anything: then the array from before the swap still exists, too. */
static bool is_unchanged(const struct environment_swap *swap)
{
	char **during = swap->during;

	if (environ != during)
		return false;
	for (char **at = swap->before; at && *at; at++)
		if (*at != swap->old && *at != *during++)
			return false;
	return *during == swap->entry && !during[1];
}

/* The environment is changed, or another array, made by somebody's setenv from ours: the array from
 * before may be freed, but its strings are not. */
static void put_back(struct environment_swap *swap)
{
	char **at = environ;

	while (at && *at && *at != swap->entry)
		at++;
	if (!at || !*at)
		return;
	if (swap->old)
		*at = swap->old;
	for (; !swap->old && *at; at++)
		at[0] = at[1];
}

void environment_swap_end(struct environment_swap *swap)
{
	lock_acquire(&swap->lock);
	if (--swap->inside == 0) {
		if (is_unchanged(swap))
			environ = swap->before;
		else
			put_back(swap);
	}
	lock_release(&swap->lock);
}
