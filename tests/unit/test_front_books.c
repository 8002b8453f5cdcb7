/* The books of small allocations against the plainest possible driver: some blocks of some places,
 * which it hands out and takes back in any order. After every call the session's ledger must hold
 * exactly the blocks that have something in them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
/* After what it needs. */
#include <cmocka.h>

#include "base/macros.h"
#include "front/books.h"
#include "front/library.h"

/* The books' library says which one it is; none is loaded here. */
const struct front_library front_library = {.soname = "none"};
const uint32_t front_count = 0;
const struct front_entry front_entries[1];
const char front_names[1];
void *_Atomic front_slots[1];
const uint8_t front_code[1], front_code_end[1];
const int32_t front_sites[1];
const uint32_t front_site_count = 0;

#define SLOT 1u
#define BLOCKS 12u
#define PLACES 16u
#define PIECE (BLOCK_BYTES / PLACES)

static struct process process;
static struct ledger_limits limits;

static int setup(void **state)
{
	size_t size = ledger_size(1, 4);
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		return -1;
	ledger_init(at, 1, 4);
	memset(&process, 0, sizeof(process));
	process.attachment.ledger = (struct ledger){.header = at, .limits = &limits};
	process.attachment.slot = SLOT;
	limits.gpu[0].limit_bytes = BLOCKS * BLOCK_BYTES;
	return 0;
}

static int teardown(void **state)
{
	return munmap(process.attachment.ledger.header, ledger_size(1, 4));
}

static uint64_t held(void)
{
	return ledger_committed(&process.attachment.ledger, 0);
}

static uint64_t handle_of(uint32_t block, uint32_t place)
{
	return GIB(1) + block * BLOCK_BYTES + place * PIECE;
}

static struct object piece(uint64_t bytes)
{
	return (struct object){.kind = OBJECT_LINEAR, .context = 7, .small = (uint32_t)bytes};
}

static int allocate(uint64_t handle, uint64_t bytes)
{
	struct object object = piece(bytes);
	int r = books_reserve(&process, &object);

	if (r < 0)
		return r;
	object.handle = handle;
	r = books_keep(&process, &object);
	if (r < 0)
		books_cancel(&process, &object);
	return r;
}

static void release(uint64_t handle, bool really)
{
	struct object object;

	assert_true(books_take(&process, OBJECT_LINEAR, handle, &object));
	if (really)
		books_drop(&process, &object);
	else
		books_restore(&process, &object);
}

static void the_charge_is_the_blocks_that_hold_something(void **state)
{
	bool live[BLOCKS][PLACES] = {0};
	uint32_t in_block[BLOCKS] = {0};

	srandom(1);
	for (int i = 0; i < 200000; i++) {
		uint32_t block = (uint32_t)random() % BLOCKS, place = (uint32_t)random() % PLACES;
		/* Now and then all of it runs empty, or full. */
		bool wants = (uint32_t)random() % 100 < (i / 5000 % 2 ? 25u : 75u);
		uint64_t sum = 0;

		if (wants && !live[block][place]) {
			assert_int_equal(allocate(handle_of(block, place), PIECE), 0);
			live[block][place] = true;
			in_block[block]++;
		} else if (!wants && live[block][place]) {
			bool really = random() % 8;

			release(handle_of(block, place), really);
			live[block][place] = !really;
			in_block[block] -= really;
		}
		for (uint32_t b = 0; b < BLOCKS; b++)
			sum += in_block[b] ? BLOCK_BYTES : 0;
		assert_int_equal(held(), sum);
	}
	books_drop_context(&process, 7);
	assert_int_equal(held(), 0);
	assert_int_equal(process.objects.used, 0);
	assert_int_equal(ledger_slot(&process.attachment.ledger, SLOT)->calls_begun,
			 ledger_slot(&process.attachment.ledger, SLOT)->calls_done);
}

/* A block that was given back stays in the books, but it is neither charged nor room. */
static void an_emptied_block_is_nothing(void **state)
{
	limits.gpu[0].limit_bytes = BLOCK_BYTES;
	assert_int_equal(allocate(handle_of(0, 0), PIECE), 0);
	release(handle_of(0, 0), true);
	assert_int_equal(held(), 0);
	limits.gpu[0].limit_bytes = BLOCK_BYTES - 1;
	assert_int_equal(allocate(handle_of(0, 1), PIECE), -ENOMEM);
	limits.gpu[0].limit_bytes = BLOCK_BYTES;
	assert_int_equal(allocate(handle_of(0, 1), PIECE), 0);
	assert_int_equal(held(), BLOCK_BYTES);
}

/* Two at once, of which the second empties its block last. */
static void only_one_emptied_block_is_kept(void **state)
{
	for (uint32_t block = 0; block < BLOCKS; block++)
		assert_int_equal(allocate(handle_of(block, 0), PIECE), 0);
	for (uint32_t block = 0; block < BLOCKS; block++)
		release(handle_of(block, 0), true);
	assert_int_equal(held(), 0);
	assert_int_equal(process.objects.used, 1);
}

/* An object with the place of another that went without our seeing it holds that place. */
static void a_stale_one_does_not_free_the_place_of_its_successor(void **state)
{
	limits.gpu[0].limit_bytes = BLOCK_BYTES;
	assert_int_equal(allocate(handle_of(0, 0), PIECE), 0);
	assert_int_equal(allocate(handle_of(0, 0), PIECE), 0);
	for (uint32_t place = 1; place < PLACES; place++)
		assert_int_equal(allocate(handle_of(0, place), PIECE), 0);
	/* The block is full, and the slice has no room for another. */
	struct object object = piece(PIECE);
	assert_int_equal(books_reserve(&process, &object), -ENOMEM);
	for (uint32_t place = 0; place < PLACES; place++)
		release(handle_of(0, place), true);
	assert_int_equal(held(), 0);
}

static uint64_t freeing_begin(uint64_t handle)
{
	struct object object;

	assert_true(books_take(&process, OBJECT_LINEAR, handle, &object));
	return books_freeing(&process, &object);
}

static bool fits(uint64_t bytes)
{
	struct object object = piece(bytes);
	int r = books_reserve(&process, &object);

	if (r == 0)
		books_cancel(&process, &object);
	return r == 0;
}

/* A stream freed one, and the driver gave its place away, before that is known here. The new owner
 * of the place holds it: the block is as full as it is. */
static void memory_freed_by_a_stream_keeps_the_place_of_its_successor(void **state)
{
	struct object object;

	limits.gpu[0].limit_bytes = 2 * BLOCK_BYTES;
	assert_int_equal(allocate(handle_of(0, 0), 2 * PIECE), 0);
	for (uint32_t place = 2; place < PLACES; place++)
		assert_int_equal(allocate(handle_of(0, place), PIECE), 0);

	uint64_t number = freeing_begin(handle_of(0, 0));
	assert_int_equal(allocate(handle_of(0, 1), PIECE), 0);
	limits.gpu[0].limit_bytes = BLOCK_BYTES;
	/* From here on it is known where there is room. */
	assert_true(fits(PIECE));
	books_freed(&process, number, true);
	assert_true(fits(PIECE));
	assert_false(fits(2 * PIECE));

	/* The same, where the other one was first to be booked. */
	limits.gpu[0].limit_bytes = 2 * BLOCK_BYTES;
	assert_true(books_take(&process, OBJECT_LINEAR, handle_of(0, 2), &object));
	assert_int_equal(allocate(handle_of(0, 2), PIECE), 0);
	number = books_freeing(&process, &object);
	limits.gpu[0].limit_bytes = BLOCK_BYTES;
	books_freed(&process, number, true);
	assert_int_equal(allocate(handle_of(0, 0), PIECE), 0);
	assert_false(fits(PIECE));
	assert_int_equal(held(), BLOCK_BYTES);
	for (uint32_t place = 0; place < PLACES; place++)
		release(handle_of(0, place), true);
	assert_int_equal(held(), 0);
}

static void pending_frees_of_a_stream_go_with_its_context(void **state)
{
	assert_int_equal(allocate(handle_of(0, 0), PIECE), 0);
	uint64_t number = freeing_begin(handle_of(0, 0));
	assert_int_equal(process.freeing_count, 1);
	books_drop_context(&process, 7);
	books_freed(&process, number, true);
	assert_int_equal(process.freeing_count, 0);
	assert_int_equal(ledger_slot(&process.attachment.ledger, SLOT)->growing, 0);
	assert_int_equal(held(), 0);
}

static struct object reserved(enum object_kind kind, uint64_t handle, uint64_t blocks)
{
	struct object object = {.kind = kind, .handle = handle, .bytes = blocks * BLOCK_BYTES};

	assert_int_equal(books_reserve(&process, &object), 0);
	return object;
}

static void image_keep(struct object *image)
{
	books_doubt(&process, image, BLOCK_BYTES);
	assert_int_equal(books_keep(&process, image), 0);
	if (image->memory)
		books_doubted(&process);
}

static void managed_free(void)
{
	struct object managed;

	assert_true(books_take(&process, OBJECT_LINEAR, 1, &managed));
	books_drop(&process, &managed);
}

/* The daemon can tell when nothing may be elsewhere any more: then as much as is in doubt is
 * leaving, once, and neither before. */
static void doubtful_memory_leaves_when_figures_tell(void **state)
{
	struct ledger_slot *slot = ledger_slot(&process.attachment.ledger, SLOT);
	struct object managed, image, early, late;

	process.attachment.gpu_count = 1;
	image = reserved(OBJECT_IMAGE, 10, 3);
	image_keep(&image);
	assert_int_equal(slot->maybe_freed, BLOCK_BYTES);
	managed = reserved(OBJECT_LINEAR, 1, 1);
	books_managed(&process, &managed);
	assert_int_equal(books_keep(&process, &managed), 0);
	early = reserved(OBJECT_IMAGE, 11, 2);
	image_keep(&early);
	late = reserved(OBJECT_IMAGE, 12, 2);
	books_doubt(&process, &late, BLOCK_BYTES);
	assert_int_equal(slot->maybe_freed, BLOCK_BYTES);
	managed_free();
	assert_int_equal(slot->maybe_freed, 2 * BLOCK_BYTES);
	assert_int_equal(books_keep(&process, &late), 0);
	books_doubted(&process);
	assert_int_equal(slot->maybe_freed, 3 * BLOCK_BYTES);
	assert_int_equal(held(), 7 * BLOCK_BYTES);
	for (uint64_t handle = 10; handle <= 12; handle++) {
		assert_true(books_take(&process, OBJECT_IMAGE, handle, &image));
		books_drop(&process, &image);
	}
	assert_int_equal(held(), 3 * BLOCK_BYTES);
	assert_int_equal(books_leaving_begin(&process, 0, GIB(1)), 3 * BLOCK_BYTES);
	books_leaving_end(&process, 0, 3 * BLOCK_BYTES, true);
	assert_int_equal(held(), 0);
}

/* The daemon is told how much managed memory there is where the driver's figures leave it out; then
 * they tell all the rest. While a daemon does not say so, it may be of an earlier version. */
static void managed_memory_that_is_apart_leaves_no_doubt(void **state)
{
	const struct ledger *l = &process.attachment.ledger;
	struct ledger_slot *slot = ledger_slot(l, SLOT);
	struct object apart, elsewhere, image;

	process.attachment.gpu_count = 1;
	limits.generation = limits.managed_unlisted_generation = 7;
	limits.managed_unlisted_gpus = 1;
	apart = reserved(OBJECT_LINEAR, 1, 4);
	books_managed(&process, &apart);
	assert_int_equal(books_keep(&process, &apart), 0);
	assert_int_equal(slot->managed, LEDGER_MANAGED_UNLISTED);
	assert_int_equal(*ledger_managed_unlisted(l, SLOT, 0), 4 * BLOCK_BYTES);
	image = reserved(OBJECT_IMAGE, 10, 2);
	image_keep(&image);
	assert_int_equal(slot->maybe_freed, BLOCK_BYTES);
	limits.generation = 8;
	image = reserved(OBJECT_IMAGE, 11, 2);
	image_keep(&image);
	assert_int_equal(slot->maybe_freed, BLOCK_BYTES);
	elsewhere = reserved(OBJECT_LINEAR, 2, 1);
	books_managed(&process, &elsewhere);
	assert_int_equal(books_keep(&process, &elsewhere), 0);
	assert_int_equal(slot->managed, LEDGER_MANAGED_SOME);
	managed_free();
	assert_int_equal(*ledger_managed_unlisted(l, SLOT, 0), 0);
	assert_int_equal(slot->managed, LEDGER_MANAGED_SOME);
	assert_true(books_take(&process, OBJECT_LINEAR, 2, &elsewhere));
	books_drop(&process, &elsewhere);
	assert_int_equal(slot->managed, LEDGER_MANAGED_NONE);
	assert_int_equal(slot->maybe_freed, 2 * BLOCK_BYTES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_charge_is_the_blocks_that_hold_something, setup,
						teardown),
		cmocka_unit_test_setup_teardown(an_emptied_block_is_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(only_one_emptied_block_is_kept, setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_stale_one_does_not_free_the_place_of_its_successor, setup, teardown),
		cmocka_unit_test_setup_teardown(
			memory_freed_by_a_stream_keeps_the_place_of_its_successor, setup, teardown),
		cmocka_unit_test_setup_teardown(pending_frees_of_a_stream_go_with_its_context,
						setup, teardown),
		cmocka_unit_test_setup_teardown(doubtful_memory_leaves_when_figures_tell, setup,
						teardown),
		cmocka_unit_test_setup_teardown(managed_memory_that_is_apart_leaves_no_doubt, setup,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
