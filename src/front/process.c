#include "front/process.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "front/books.h"
#include "front/library.h"

static struct process *_Atomic current;

/* The page of the process, made at the first need. When two threads make one, one is dropped. */
static struct process *process_page(void)
{
	struct process *p = atomic_load_explicit(&current, memory_order_acquire);
	struct process *none = NULL;

	if (p)
		return p;
	p = mmap(NULL, sizeof(*p), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	if (madvise(p, sizeof(*p), MADV_WIPEONFORK) < 0 ||
	    !atomic_compare_exchange_strong(&current, &none, p))
		munmap(p, sizeof(*p));
	return atomic_load(&current);
}

/* The one line that the front ever writes. */
static void complain(const char *why)
{
	char line[512];
	int n = snprintf(line, sizeof(line), "carve: no GPU for process %d: %s\n", (int)getpid(),
			 why);

	if (n > 0 && write(STDERR_FILENO, line, (size_t)n) < 0)
		return;
}

static void attach(struct process *p)
{
	char why[320];

	lock_acquire(&p->attaching);
	if (atomic_load(&p->state) == PROCESS_UNATTACHED) {
		int r = attach_open(front_library.attach_kind, &p->attachment, why, sizeof(why));

		if (r < 0)
			complain(why);
		atomic_store_explicit(&p->state, r < 0 ? PROCESS_REFUSED : PROCESS_ATTACHED,
				      memory_order_release);
	}
	lock_release(&p->attaching);
}

struct process *process_peek(void)
{
	struct process *p = atomic_load_explicit(&current, memory_order_acquire);

	return p && atomic_load_explicit(&p->state, memory_order_acquire) == PROCESS_ATTACHED
		       ? p
		       : NULL;
}

struct process *process_get(void)
{
	struct process *p = process_peek();

	if (!p) {
		struct process *first = process_page();

		if (first &&
		    atomic_load_explicit(&first->state, memory_order_acquire) == PROCESS_UNATTACHED)
			attach(first);
		p = process_peek();
	}
	return p;
}

bool process_sweep(struct process *p)
{
	lock_acquire(&p->attaching);
	bool swept = attach_sweep(&p->attachment);
	lock_release(&p->attaching);
	return swept;
}

void process_settle(struct process *p, bool contexts, struct attach_settling *s)
{
	s->exact = contexts && !p->growing_count && books_figures_tell(p);
	lock_acquire(&p->attaching);
	attach_settle(&p->attachment, s);
	lock_release(&p->attaching);
}
