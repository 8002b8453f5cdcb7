/* The parts of the simulated libcuda that stand alone: free stretches, the set of handles, ranges,
 * compressed images. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <lz4.h>
#include <zstd.h>

#include "base/fatbin.h"
#include "cuda/gap.h"
#include "cuda/handle.h"
#include "cuda/memory.h"
#include "cuda/module.h"

static void test_gaps_merge_again(void **state)
{
	struct gap *list = malloc(sizeof(*list));
	uint64_t at[8];

	*list = (struct gap){.size = 800};
	for (int i = 0; i < 8; i++) {
		assert_true(gap_take(&list, 100, &at[i]));
		assert_int_equal(at[i], i * 100);
	}
	assert_null(list);
	assert_false(gap_take(&list, 1, &at[0]));
	/* In any order they become one again. */
	const int order[] = {3, 1, 5, 7, 0, 4, 6, 2};
	for (int i = 0; i < 8; i++)
		gap_give(&list, (uint64_t)order[i] * 100, 100);
	assert_non_null(list);
	assert_null(list->next);
	assert_int_equal(list->offset, 0);
	assert_int_equal(list->size, 800);
	free(list);
}

static void test_gaps_take_the_first_fit(void **state)
{
	struct gap *list = NULL;
	uint64_t at;

	gap_give(&list, 0, 10);
	gap_give(&list, 100, 50);
	gap_give(&list, 200, 20);
	assert_true(gap_take(&list, 20, &at));
	assert_int_equal(at, 100);
	assert_true(gap_take(&list, 10, &at));
	assert_int_equal(at, 0);
	assert_false(gap_take(&list, 31, &at));
	while (list) {
		struct gap *next = list->next;

		free(list);
		list = next;
	}
}

static void test_handles_die(void **state)
{
	static char place[5000];

	for (size_t i = 0; i < sizeof(place); i++)
		assert_true(handle_add(&place[i], i % 2 ? HANDLE_EVENT : HANDLE_STREAM));
	for (size_t i = 0; i < sizeof(place); i += 3)
		handle_remove(&place[i]);
	for (size_t i = 0; i < sizeof(place); i++) {
		enum handle_type type = i % 2 ? HANDLE_EVENT : HANDLE_STREAM;

		assert_int_equal(handle_type_of(&place[i]), i % 3 ? type : HANDLE_NONE);
		assert_int_equal(handle_is(&place[i], HANDLE_MODULE), false);
	}
	assert_false(handle_is(NULL, HANDLE_NONE));
	/* Addresses come back, for other things. */
	for (int i = 0; i < 10000; i++) {
		assert_true(handle_add(&place[0], HANDLE_GRAPH));
		handle_remove(&place[0]);
	}
	assert_int_equal(handle_type_of(&place[0]), HANDLE_NONE);
}

static void test_ranges_are_found_by_any_address(void **state)
{
	struct range range;

	for (uint64_t i = 0; i < 1000; i++) {
		const struct range r = {
			.start = 0x1000 + i * 100, .size = 60, .kind = RANGE_LINEAR};

		assert_true(range_add(&r));
	}
	const struct range over = {.start = 0x1000 + 59, .size = 10, .kind = RANGE_LINEAR};
	assert_false(range_add(&over));
	assert_true(range_find(0x1000 + 500 * 100 + 59, &range));
	assert_int_equal(range.start, 0x1000 + 500 * 100);
	assert_false(range_find(0x1000 + 500 * 100 + 60, &range));
	assert_false(range_find(0xfff, &range));
	assert_false(range_remove(0x1001, 0, &range));
	assert_false(range_remove(0x1000, RANGE_POOL, &range));
	assert_true(range_remove(0x1000, RANGE_LINEAR, &range));
	assert_false(range_find(0x1000, &range));
}

static void test_ranges_cover_side_by_side(void **state)
{
	const struct range a = {.start = 0x800000, .size = 100, .kind = RANGE_VMM};
	const struct range b = {.start = 0x800000 + 100, .size = 50, .kind = RANGE_VMM};

	assert_true(range_add(&a));
	assert_true(range_add(&b));
	assert_true(range_covers(0x800000, 150));
	assert_true(range_covers(0x800000 + 149, 1));
	assert_false(range_covers(0x800000, 151));
	assert_false(range_covers(0x800000 - 1, 10));
	assert_false(range_covers(0x800000, UINT64_MAX));
}

static void test_ranges_of_a_context(void **state)
{
	CUcontext one = (CUcontext)(uintptr_t)8, two = (CUcontext)(uintptr_t)16;
	struct range range;
	int count = 0;

	for (uint64_t i = 0; i < 20; i++) {
		const struct range r = {.start = 0x900000 + i * 8,
					.size = 8,
					.kind = RANGE_LINEAR,
					.ctx = i % 2 ? one : two};

		assert_true(range_add(&r));
	}
	while (range_take_of(one, &range))
		count++;
	assert_int_equal(count, 10);
	assert_true(range_find(0x900000, &range));
	assert_false(range_find(0x900008, &range));
}

static const uint64_t methods[] = {FATBIN_LZ4, FATBIN_ZSTD};

/* Text that is worth compressing. */
static void text_make(char *to, size_t size)
{
	for (size_t i = 0; i < size - 1; i++)
		to[i] = "add.u32 %r1, %r2, 0;\n"[i % 22] ^ (i % 97 == 0);
	to[size - 1] = '\0';
}

static size_t compress(uint64_t method, const char *text, size_t size, char *to, size_t room)
{
	if (method == FATBIN_LZ4)
		return (size_t)LZ4_compress_default(text, to, (int)size, (int)room);
	return ZSTD_compress(to, room, text, size, 3);
}

/* The result of an image of one entry with such data. The image is as large as it has to be, so
 * that a sanitizer sees what lies beyond it. */
static CUresult text_of(uint64_t method, const void *data, size_t size, uint64_t plain_size,
			char **ret)
{
	struct {
		struct fatbin_header header;
		struct fatbin_compressed compressed;
		char data[];
	} *image = malloc(sizeof(*image) + size);

	image->header = (struct fatbin_header){.magic = FATBIN_MAGIC,
					       .version = 1,
					       .header_size = sizeof(image->header),
					       .size = sizeof(image->compressed) + size};
	image->compressed = (struct fatbin_compressed){
		.entry = {.kind = FATBIN_PTX,
			  .header_size = sizeof(image->compressed),
			  .size = size,
			  .compressed_size = (uint32_t)size,
			  .arch = 80,
			  .flags = method | 0x11},
		.plain_size = plain_size,
	};
	memcpy(image->data, data, size);
	*ret = NULL;
	CUresult result = image_text(image, ret);
	free(image);
	return result;
}

static void test_compressed_images_are_read(void **state)
{
	char text[5000], data[8000], *found;

	text_make(text, sizeof(text));
	for (size_t i = 0; i < 2; i++) {
		size_t size = compress(methods[i], text, sizeof(text), data, sizeof(data));

		assert_in_range(size, 1, sizeof(text) / 2);
		assert_int_equal(text_of(methods[i], data, size, sizeof(text), &found), 0);
		assert_string_equal(found, text);
		free(found);
		/* Said to be larger than it is; too large; by no known method, or by two. */
		assert_int_equal(text_of(methods[i], data, size, sizeof(text) + 1, &found), 0);
		assert_string_equal(found, text);
		free(found);
		assert_int_equal(text_of(methods[i], data, size, (1u << 30) + 1, &found),
				 CUDA_ERROR_NO_BINARY_FOR_GPU);
		assert_int_equal(text_of(0x4000, data, size, sizeof(text), &found),
				 CUDA_ERROR_NO_BINARY_FOR_GPU);
		assert_int_equal(
			text_of(FATBIN_LZ4 | FATBIN_ZSTD, data, size, sizeof(text), &found),
			CUDA_ERROR_NO_BINARY_FOR_GPU);
		/* More comes out of it than there is said to be. */
		for (size_t plain = 0; plain < sizeof(text); plain += 7)
			assert_int_equal(text_of(methods[i], data, size, plain, &found),
					 CUDA_ERROR_INVALID_IMAGE);
	}
}

static void test_damaged_images_are_refused(void **state)
{
	char text[5000], data[8000], *found;

	text_make(text, sizeof(text));
	for (size_t i = 0; i < 2; i++) {
		size_t size = compress(methods[i], text, sizeof(text), data, sizeof(data));

		assert_int_equal(text_of(methods[i], "", 0, sizeof(text), &found),
				 CUDA_ERROR_INVALID_IMAGE);
		/* Cut off: blocks of LZ4 do not say where they end. */
		for (size_t n = 1; n < size; n++) {
			CUresult result = text_of(methods[i], data, n, sizeof(text), &found);

			if (result != CUDA_ERROR_INVALID_IMAGE)
				assert_int_equal(methods[i], FATBIN_LZ4);
			free(found);
		}
		/* Damage may give another text, of no more than there is said to be. */
		for (size_t n = 0; n < size * 8; n++) {
			data[n / 8] ^= (char)(1 << n % 8);
			CUresult result = text_of(methods[i], data, size, sizeof(text), &found);

			if (result == CUDA_SUCCESS)
				assert_in_range(strlen(found), 0, sizeof(text));
			else
				assert_int_equal(result, CUDA_ERROR_INVALID_IMAGE);
			free(found);
			data[n / 8] ^= (char)(1 << n % 8);
		}
		memset(data, 255, size);
		assert_int_equal(text_of(methods[i], data, size, sizeof(text), &found),
				 CUDA_ERROR_INVALID_IMAGE);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gaps_merge_again),
		cmocka_unit_test(test_gaps_take_the_first_fit),
		cmocka_unit_test(test_handles_die),
		cmocka_unit_test(test_ranges_are_found_by_any_address),
		cmocka_unit_test(test_ranges_cover_side_by_side),
		cmocka_unit_test(test_ranges_of_a_context),
		cmocka_unit_test(test_compressed_images_are_read),
		cmocka_unit_test(test_damaged_images_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
