#include "daemon/settle/locks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"

#define TEXT_ROOM_LEAST ((size_t)1 << 16)

/* The kernel lists them a page at a time (seq_file), and counts them anew for each. An entry at the
 * end of a page is passed over if some before it have gone when the next page is read. So the first
 * piece has another length in each reading, that many lengths. An entry that is at an end in one of
 * them is far from it in the others. */
#define PIECE 4096
#define PIECE_LENGTHS 4
/* In how many readings, one after the other, nothing new is found; and how often it is read at
 * most. Measured 2026-11-23, Linux 6, beside 24 locks that come and go as fast as they can: none of
 * 100,000 looks misses a mark, wherever in its page it lies. With one length, 1 in 1,000 does. */
#define READINGS_SAME PIECE_LENGTHS
#define READINGS_MOST 16

static int by_start(const void *a, const void *b)
{
	uint64_t of_a = mark_start(&((const struct descriptor *)a)->mark);
	uint64_t of_b = mark_start(&((const struct descriptor *)b)->mark);

	return (of_a > of_b) - (of_a < of_b);
}

/* There may be several of one memory. */
static void unify(struct locks *l)
{
	size_t kept = 0;

	if (l->count)
		qsort(l->list, l->count, sizeof(*l->list), by_start);
	for (size_t i = 0; i < l->count; i++)
		if (!kept || by_start(&l->list[kept - 1], &l->list[i]) != 0)
			l->list[kept++] = l->list[i];
	l->count = kept;
}

/* Anybody can make any number of them: those beyond are left out. */
static int add(struct locks *l, struct mark mark, uint64_t bytes)
{
	if (l->count >= LOCKS_MOST)
		return 0;
	struct descriptor *list = array_grown(l->list, l->count, &l->room, sizeof(*list));
	if (!list)
		return -ENOMEM;
	l->list = list;
	l->list[l->count++] = (struct descriptor){mark, bytes};
	return 0;
}

/* The fields of a line: "1: OFDLCK ADVISORY  READ -1 00:09:102389 FIRST LAST". */
enum { FIELD_KIND = 1, FIELD_TYPE = 3, FIELD_FIRST = 6, FIELD_LAST, FIELDS };

/* False: fewer than that. */
static bool fields_read(char *line, char *fields[static FIELDS])
{
	char *rest = line;

	for (int i = 0; i < FIELDS; i++)
		if (!(fields[i] = strtok_r(i ? NULL : line, " ", &rest)))
			return false;
	return true;
}

static bool number_read(const char *text, uint64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoull(text, &end, 10);
	return end != text && !*end && !errno;
}

static int line_read(struct locks *l, char *line, locks_filter *wanted, const void *context)
{
	char *fields[FIELDS];
	uint64_t first, last;

	/* A range without an end has no number there. */
	if (!fields_read(line, fields) || strcmp(fields[FIELD_KIND], "OFDLCK") != 0 ||
	    strcmp(fields[FIELD_TYPE], "READ") != 0 || !number_read(fields[FIELD_FIRST], &first) ||
	    !number_read(fields[FIELD_LAST], &last) || last < first ||
	    last - first >= MARK_BYTES_MOST / MARK_UNIT)
		return 0;
	struct mark mark = mark_of(first);
	return wanted(&mark, context) ? add(l, mark, (last - first + 1) * MARK_UNIT) : 0;
}

/* Looked at this often among lines, which are filtered by all sessions. */
#define LINES_UNTIMED 16u

/* The thread's own time: on a busy machine it is not the list that takes so long. */
static uint64_t worked_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static bool is_late(const struct locks *l)
{
	return worked_ns() >= l->until_ns;
}

static int text_grow(struct locks *l)
{
	size_t room = l->text_room ? 2 * l->text_room : TEXT_ROOM_LEAST;
	char *text = realloc(l->text, room);

	if (!text)
		return -ENOMEM;
	l->text = text;
	l->text_room = room;
	return 0;
}

/* All of the file, of which it gets `first` bytes at first, with a 0 at its end. */
static int text_read(struct locks *l, int fd, size_t first, size_t *ret_size)
{
	size_t size = 0;
	int r = 0;

	for (;;) {
		if (size + TEXT_ROOM_LEAST / 2 > l->text_room && (r = text_grow(l)) < 0)
			return r;
		ssize_t n = read(fd, l->text + size, size ? l->text_room - size - 1 : first);
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			break;
		if (is_late(l))
			return -ETIME;
		size += n > 0 ? (size_t)n : 0;
	}
	l->text[size] = 0;
	*ret_size = size;
	return 0;
}

/* *ret_whole: none was passed over. One that came in one piece may have lacked some that had moved
 * up when the next was asked for, if it was as long as a piece. */
static int read_once(struct locks *l, size_t first, locks_filter *wanted, const void *context,
		     bool *ret_whole)
{
	int fd = open("/proc/locks", O_RDONLY | O_CLOEXEC), r;
	size_t size = 0;
	char *rest;

	if (fd < 0)
		return -errno;
	r = text_read(l, fd, first, &size);
	close(fd);
	unsigned lines = 0;
	for (char *line = r < 0 ? NULL : strtok_r(l->text, "\n", &rest); line && r == 0;
	     line = strtok_r(NULL, "\n", &rest))
		r = lines++ % LINES_UNTIMED == 0 && is_late(l)
			    ? -ETIME
			    : line_read(l, line, wanted, context);
	unify(l);
	*ret_whole = r == 0 && first == PIECE && size <= PIECE / 2;
	return r;
}

int locks_read(struct locks *l, uint64_t most_ns, locks_filter *wanted, locks_misses *misses,
	       const void *context)
{
	bool whole = false;
	int r = 0;

	l->count = 0;
	l->until_ns = worked_ns() + most_ns;
	for (int i = 0, same = 0;
	     i < READINGS_MOST && !whole && (same < READINGS_SAME || misses(l, context)); i++) {
		size_t count = l->count, part = (size_t)(i + PIECE_LENGTHS - 1) % PIECE_LENGTHS;

		r = read_once(l, PIECE * (part + 1) / PIECE_LENGTHS, wanted, context, &whole);
		if (r < 0)
			return r;
		same = l->count == count ? same + 1 : 0;
	}
	return r;
}

bool locks_have(const struct locks *l, const struct mark *mark)
{
	struct descriptor key = {.mark = *mark};

	return l->count && bsearch(&key, l->list, l->count, sizeof(*l->list), by_start);
}

void locks_free(struct locks *l)
{
	free(l->list);
	free(l->text);
	*l = (struct locks){0};
}
