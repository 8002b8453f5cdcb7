#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "host/books.h"
#include "host/faults.h"
#include "host/trace.h"

#define HOLDERS 5
#define REFS 400

static void ids_come_and_go(void **state)
{
	struct idmap m = {0};
	static uint64_t values[20000];

	assert_null(idmap_get(&m, 1));
	idmap_remove(&m, 1);
	for (uint64_t i = 1; i < ARRAY_SIZE(values); i++)
		assert_int_equal(idmap_put(&m, i, &values[i]), 0);
	for (uint64_t i = 1; i < ARRAY_SIZE(values); i += 3)
		idmap_remove(&m, i);
	for (uint64_t i = 1; i < ARRAY_SIZE(values); i++)
		assert_ptr_equal(idmap_get(&m, i), i % 3 == 1 ? NULL : &values[i]);
	assert_null(idmap_get(&m, 0));
	assert_null(idmap_get(&m, 1ull << 60));
	idmap_finish(&m);
}

struct rig {
	struct books books;
	struct book_space space[2];
	struct book_holder holder[HOLDERS + 1]; /* the last one is an anchor */
	int64_t told[HOLDERS + 1];              /* by `changed`; [HOLDERS]: nobody's */
};

static void hear(void *context, const struct book_holder *holder, const struct book_block *block,
		 int64_t delta)
{
	struct rig *r = context;
	ptrdiff_t who = holder ? holder - r->holder : HOLDERS;

	r->told[who] += delta;
	assert_true(r->told[who] >= 0);
}

static int rig_make(void **state)
{
	struct rig *r = calloc(1, sizeof(*r));

	books_init(&r->books);
	r->books.changed = hear;
	r->books.context = r;
	r->space[0] = (struct book_space){.capacity = 1000, .gpu = 0};
	r->space[1] = (struct book_space){.capacity = 5000, .gpu = 1};
	for (size_t i = 0; i <= HOLDERS; i++)
		book_holder_init(&r->holder[i], NULL);
	book_holder_anchor(&r->holder[HOLDERS]);
	*state = r;
	return 0;
}

static int rig_free(void **state)
{
	struct rig *r = *state;

	for (size_t i = 0; i <= HOLDERS; i++)
		book_holder_finish(&r->books, &r->holder[i]);
	for (size_t i = 0; i <= HOLDERS; i++)
		assert_int_equal(r->told[i], 0);
	assert_int_equal(r->space[0].used, 0);
	assert_int_equal(r->space[1].used, 0);
	assert_int_equal(r->books.blocks.count, 0);
	assert_int_equal(r->books.refs.count, 0);
	books_finish(&r->books);
	free(r);
	return 0;
}

static uint64_t account_bytes(const struct book_holder *h, const struct book_space *space)
{
	const struct book_account *a = book_account_find(h, space);

	return a ? a->bytes : 0;
}

static void room(void **state)
{
	struct rig *r = *state;
	struct books *b = &r->books;
	uint64_t id, other;

	assert_int_equal(books_reserve(b, &r->holder[0], r->space, 0, 0, &id), -EINVAL);
	assert_int_equal(books_reserve(b, &r->holder[0], r->space, 0, 1001, &id), -ENOMEM);
	assert_int_equal(books_reserve(b, &r->holder[0], r->space, 0, UINT64_MAX, &id), -ENOMEM);
	assert_int_equal(books_reserve(b, &r->holder[0], r->space, 0, 1000, &id), 0);
	assert_int_equal(books_reserve(b, &r->holder[1], r->space, 0, 1, &other), -ENOMEM);
	assert_int_equal(books_release(b, &r->holder[1], id), -ENOENT);
	assert_int_equal(books_release(b, &r->holder[0], id), 0);
	assert_int_equal(books_release(b, &r->holder[0], id), -ENOENT);
	assert_int_equal(books_reserve(b, &r->holder[1], r->space, 0, 1, &other), 0);
	assert_int_equal(r->space[0].peak, 1000);
}

/* The charge goes to who holds it longest; an anchor only keeps it. */
static void shared(void **state)
{
	struct rig *r = *state;
	struct books *b = &r->books;
	uint64_t first, second, anchored;

	assert_int_equal(books_reserve(b, &r->holder[0], r->space, 3, 100, &first), 0);
	struct book_block *block = books_block(b, &r->holder[0], first);
	assert_null(books_block(b, &r->holder[1], first));
	assert_int_equal(books_refer(b, &r->holder[HOLDERS], block, &anchored), 0);
	assert_int_equal(books_refer(b, &r->holder[1], block, &second), 0);
	assert_int_equal(account_bytes(&r->holder[0], r->space), 100);
	assert_int_equal(account_bytes(&r->holder[1], r->space), 0);
	books_release(b, &r->holder[0], first);
	assert_int_equal(account_bytes(&r->holder[0], r->space), 0);
	assert_int_equal(account_bytes(&r->holder[1], r->space), 100);
	books_release(b, &r->holder[1], second);
	assert_int_equal(r->space[0].used, 100);
	assert_int_equal(r->told[HOLDERS], 100);
	assert_int_equal(books_refer(b, &r->holder[2], block, &second), 0);
	assert_int_equal(account_bytes(&r->holder[2], r->space), 100);
	assert_int_equal(r->told[HOLDERS], 0);
	book_holder_finish(b, &r->holder[2]);
	assert_int_equal(r->told[HOLDERS], 100);
	books_release(b, &r->holder[HOLDERS], anchored);
	assert_int_equal(r->space[0].used, 0);
}

static void tokens(void **state)
{
	struct rig *r = *state;
	struct books *b = &r->books;
	uint8_t note[64] = {1}, token[32];
	uint64_t id;

	assert_int_equal(books_reserve(b, &r->holder[0], r->space, 0, 10, &id), 0);
	struct book_block *block = books_block(b, &r->holder[0], id);
	memcpy(token, block->token, sizeof(token));
	assert_null(books_block_by_token(b, token)); /* never exported */
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC), again = dup(fd);
	assert_int_equal(books_export(block, fd, note), 0);
	memcpy(token, block->token, sizeof(token));
	assert_ptr_equal(books_block_by_token(b, token), block);
	assert_int_equal(books_export(block, again, note), 0);
	assert_int_equal(block->fd, fd);
	assert_int_equal(fcntl(again, F_GETFD), -1);
	assert_memory_equal(block->token, token, sizeof(token));
	for (size_t i = 0; i < sizeof(token); i++) {
		token[i] ^= 1;
		assert_null(books_block_by_token(b, token));
		token[i] ^= 1;
	}
	books_release(b, &r->holder[0], id);
	assert_null(books_block_by_token(b, token));
	assert_int_equal(fcntl(fd, F_GETFD), -1);
}

/* References that were given out, of any holder. */
struct walk {
	struct rig *rig;
	struct {
		uint64_t id;
		size_t holder;
	} refs[REFS];
	size_t count;
	uint32_t seed;
};

static size_t below(struct walk *w, size_t limit)
{
	w->seed = w->seed * 1664525u + 1013904223u;
	return (w->seed >> 8) % limit;
}

static void walk_note(struct walk *w, uint64_t id, size_t holder)
{
	w->refs[w->count].id = id;
	w->refs[w->count++].holder = holder;
}

static void walk_reserve(struct walk *w)
{
	size_t who = below(w, HOLDERS);
	uint64_t id;

	if (books_reserve(&w->rig->books, &w->rig->holder[who], &w->rig->space[below(w, 2)],
			  (enum wire_memory)below(w, WIRE_MEMORY_KINDS), below(w, 300), &id) == 0)
		walk_note(w, id, who);
}

static void walk_refer(struct walk *w)
{
	size_t who = below(w, HOLDERS + 1), of = below(w, w->count);
	struct book_block *block =
		books_block(&w->rig->books, &w->rig->holder[w->refs[of].holder], w->refs[of].id);
	uint64_t id;

	assert_non_null(block);
	assert_int_equal(books_refer(&w->rig->books, &w->rig->holder[who], block, &id), 0);
	walk_note(w, id, who);
}

static void walk_release(struct walk *w)
{
	size_t of = below(w, w->count);

	assert_int_equal(
		books_release(&w->rig->books, &w->rig->holder[w->refs[of].holder], w->refs[of].id),
		0);
	w->refs[of] = w->refs[--w->count];
}

static void walk_death(struct walk *w)
{
	size_t who = below(w, HOLDERS + 1);
	struct book_holder *h = &w->rig->holder[who];

	book_holder_finish(&w->rig->books, h);
	book_holder_init(h, NULL);
	if (who == HOLDERS)
		book_holder_anchor(h);
	for (size_t i = 0; i < w->count;) {
		if (w->refs[i].holder == who)
			w->refs[i] = w->refs[--w->count];
		else
			i++;
	}
}

static void books_add_up(const struct rig *r)
{
	uint64_t charged = 0;
	int64_t told = 0;

	for (size_t i = 0; i < HOLDERS; i++)
		charged += account_bytes(&r->holder[i], &r->space[0]) +
			   account_bytes(&r->holder[i], &r->space[1]);
	for (size_t i = 0; i <= HOLDERS; i++)
		told += r->told[i];
	assert_int_equal(told, r->space[0].used + r->space[1].used);
	assert_int_equal(charged + (uint64_t)r->told[HOLDERS], told);
	assert_true(r->space[0].used <= 1000 && r->space[1].used <= 5000);
}

/* The used memory is what is charged, and never more than there is, whatever is done in whatever
 * order. */
static void random_walk(void **state)
{
	struct walk w = {.rig = *state, .seed = 11};

	for (int step = 0; step < 200000; step++) {
		size_t what = below(&w, 100);

		if (what == 99)
			walk_death(&w);
		else if (what < 35 && w.count < REFS)
			walk_reserve(&w);
		else if (what < 60 && w.count && w.count < REFS)
			walk_refer(&w);
		else if (w.count)
			walk_release(&w);
		books_add_up(w.rig);
	}
}

static struct wire_fault_set fault(enum wire_fault kind)
{
	return (struct wire_fault_set){.fault = kind, .any_device = 1};
}

static bool hit(struct faults *f, enum wire_fault kind, wire_device device, pid_t pid, uint64_t now)
{
	int32_t error;
	uint64_t delay;

	return faults_take(f, kind, device, pid, "cuX", now, &error, &delay);
}

static void faults_hit_whom_they_should(void **state)
{
	struct faults f = {0};
	struct wire_fault_set set = fault(WIRE_FAULT_ALLOC);

	set.any_device = 0;
	set.device = 1;
	assert_int_equal(faults_set(&f, &set, 0), 0);
	assert_false(hit(&f, WIRE_FAULT_ALLOC, 0, 5, 1));
	assert_true(hit(&f, WIRE_FAULT_ALLOC, 1, 5, 1));
	assert_true(hit(&f, WIRE_FAULT_ALLOC, WIRE_DEVICE_MIG(1, 2, 0), 5, 1));
	assert_false(hit(&f, WIRE_FAULT_LAUNCH, 1, 5, 1));
	assert_int_equal(faults_armed(&f), 1u << WIRE_FAULT_ALLOC);
	assert_true(faults_on_gpu(&f, WIRE_FAULT_ALLOC, 1));
	assert_false(faults_on_gpu(&f, WIRE_FAULT_ALLOC, 0));
	assert_false(faults_on_gpu(&f, WIRE_FAULT_ECC, 1));

	set = fault(WIRE_FAULT_HANG);
	set.for_ns = 100;
	set.pid = 7;
	assert_int_equal(faults_set(&f, &set, 1000), 0);
	assert_int_equal(faults_wake(&f), 1100);
	assert_false(hit(&f, WIRE_FAULT_HANG, 0, 6, 1050));
	assert_true(hit(&f, WIRE_FAULT_HANG, 0, 7, 1050));
	assert_false(hit(&f, WIRE_FAULT_HANG, 0, 7, 1100));
	f.changed = false;
	faults_expire(&f, 1099);
	assert_false(f.changed);
	faults_expire(&f, 1100);
	assert_true(f.changed);
	assert_int_equal(faults_armed(&f), 1u << WIRE_FAULT_ALLOC);

	set = fault(WIRE_FAULTS);
	assert_int_equal(faults_set(&f, &set, 0), -EINVAL);
	set.clear = 1;
	assert_int_equal(faults_set(&f, &set, 0), 0);
	assert_int_equal(faults_armed(&f), 0);
	set = fault(WIRE_FAULT_NVML);
	for (uint32_t i = 0; i < FAULTS_MAX; i++)
		assert_int_equal(faults_set(&f, &set, 0), 0);
	assert_int_equal(faults_set(&f, &set, 0), -ENOSPC);
}

static void trace_keeps_the_newest(void **state)
{
	struct trace *t = trace_new(10000);

	for (uint64_t i = 0; i < 25000; i++)
		trace_add(t, &(struct trace_event){.at = i});
	assert_int_equal(trace_count(t), 10000);
	assert_int_equal(trace_lost(t), 15000);
	for (size_t i = 0; i < 10000; i++)
		assert_int_equal(trace_get(t, i)->at, 15000 + i);
	trace_free(t);
	trace_free(NULL);
}

int main(void)
{
#define RIGGED(f) cmocka_unit_test_setup_teardown(f, rig_make, rig_free)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ids_come_and_go),
		RIGGED(room),
		RIGGED(shared),
		RIGGED(tokens),
		RIGGED(random_walk),
		cmocka_unit_test(faults_hit_whom_they_should),
		cmocka_unit_test(trace_keeps_the_newest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
