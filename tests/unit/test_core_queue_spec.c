/* The arguments of `carve agent`: core/queue_spec.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/macros.h"
#include "core/queue_spec.h"

static void queues_are_read(void **state)
{
	struct queue_spec spec;
	struct error err = {0};
	char text[QUEUE_SIZE_TEXT];

	assert_int_equal(queue_spec_parse("half_gpu=0.5", &spec, &err), 0);
	assert_string_equal(spec.name, "half_gpu");
	assert_int_equal(spec.size, QUEUE_SIZE_FRACTION);
	assert_int_equal(spec.share, 500000);
	assert_string_equal(queue_size_text(&spec, text), "0.5");
	assert_int_equal(queue_spec_parse("dual=2", &spec, &err), 0);
	assert_int_equal(spec.size, QUEUE_SIZE_WHOLE);
	assert_int_equal(spec.gpus_min, 2);
	assert_int_equal(spec.gpus_max, 2);
	assert_int_equal(queue_spec_parse("many=1-4,max=3", &spec, &err), 0);
	assert_int_equal(spec.gpus_min, 1);
	assert_int_equal(spec.gpus_max, 4);
	assert_int_equal(spec.most, 3);
	assert_string_equal(queue_size_text(&spec, text), "1-4");
	assert_int_equal(queue_spec_parse("own", &spec, &err), 0);
	assert_int_equal(spec.size, QUEUE_SIZE_OF_JOB);
	assert_int_equal(spec.most, 0);
	assert_string_equal(queue_size_text(&spec, text), "");
	assert_int_equal(queue_spec_parse("own,max=2", &spec, &err), 0);
	assert_int_equal(spec.most, 2);
	assert_int_equal(queue_spec_parse("tiny=0.001", &spec, &err), 0);
	assert_int_equal(spec.share, 1000);
	assert_int_equal(queue_spec_parse("eighth=0.125", &spec, &err), 0);
	assert_int_equal(queue_spec_parse("whole=1.0", &spec, &err), 0);
	assert_int_equal(spec.size, QUEUE_SIZE_WHOLE);
}

static void wrong_queues_are_refused_by_name(void **state)
{
	static const struct {
		const char *text, *says;
	} wrong[] = {
		{"a=1.25", "1.25"},
		{"a=0", "no GPU"},
		{"a=0.0", "no GPU"},
		{"a=-1", "negative"},
		{"a=-0.5", "negative"},
		{"a=", "''"},
		{"a=x", "'x'"},
		{"a=0.0001", "0.001"},
		{"a=4-1", "range"},
		{"a=0-2", "range"},
		{"a=1-", "range"},
		{"a=1-2x", "range"},
		{"a=1-999999", "more GPUs"},
		{"a=999", "more GPUs"},
		{"a=0.5,max=0", "number of jobs"},
		{"a=0.5,most=1", "max=K"},
		{"=0.5", "''"},
		{"a b=1", "a b"},
		{"-a=1", "-a"},
		{"a/b=1", "a/b"},
		{"a=nan", "nan"},
		{"a=inf", "inf"},
		{"a=1e0", "1e0"},
		{"a=0.5 ", "0.5 "},
	};

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		struct queue_spec spec;
		struct error err = {0};

		assert_true(queue_spec_parse(wrong[i].text, &spec, &err) < 0);
		assert_int_equal(err.code, EXIT_CODE_USAGE);
		assert_non_null(strstr(err.message, wrong[i].says));
	}
}

static void gpu_lists_are_read_in_every_spelling(void **state)
{
	static const struct {
		const char *text;
		uint64_t mask;
		const char *shown;
	} right[] = {
		{"0", 1, "0"},
		{"0-2", 7, "0-2"},
		{"0,1", 3, "0-1"},
		{"0, 1", 3, "0-1"},
		{"0 1", 3, "0-1"},
		{" 0 , 2 ", 5, "0,2"},
		{"0,", 1, "0"},
		{"0-1,4", 19, "0-1,4"},
		{"all", UINT64_MAX, "all"},
		{"63", 1ull << 63, "63"},
	};
	char text[QUEUE_GPUS_TEXT];

	for (size_t i = 0; i < ARRAY_SIZE(right); i++) {
		struct error err = {0};
		uint64_t mask = 0;

		assert_int_equal(queue_gpus_parse(right[i].text, &mask, &err), 0);
		assert_int_equal(mask, right[i].mask);
		assert_string_equal(queue_gpus_text(mask, text), right[i].shown);
	}
}

static void wrong_gpu_lists_are_refused(void **state)
{
	static const char *const wrong[] = {"",
					    "x",
					    "-1",
					    "0-",
					    "2-0",
					    "0,0",
					    "0-2,1",
					    "64",
					    "0;1",
					    "0:0,0:1",
					    "all,0",
					    "0..2",
					    "99999999999999999999"};

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		struct error err = {0};
		uint64_t mask;

		assert_true(queue_gpus_parse(wrong[i], &mask, &err) < 0);
		assert_int_equal(err.code, EXIT_CODE_USAGE);
	}
}

static void test_a_queue_may_have_an_image(void **state)
{
	struct queue_spec spec;
	struct error err = {0};

	assert_int_equal(queue_spec_parse("q=0.5,max=2,docker=host:5000/a/b:1", &spec, &err), 0);
	assert_int_equal(spec.most, 2);
	assert_string_equal(spec.image, "host:5000/a/b:1");
	assert_int_equal(queue_spec_parse("q,docker=busybox", &spec, &err), 0);
	assert_string_equal(spec.image, "busybox");
	assert_true(queue_spec_parse("q,docker=", &spec, &err) < 0);
	assert_true(queue_spec_parse("q,docker=--privileged", &spec, &err) < 0);
}

static void test_options_of_containers_are_allowed_and_denied(void **state)
{
	const char *args = "--ipc=host\n--init";

	assert_null(queue_container_refuse("", "ipc", "init"));
	assert_null(queue_container_refuse(args, "", ""));
	assert_null(queue_container_refuse(args, "ipc, --init", "volume"));
	assert_ptr_equal(queue_container_refuse(args, "ipc", ""), args + 11);
	assert_ptr_equal(queue_container_refuse(args, "", "ipc"), args);
	assert_ptr_equal(queue_container_refuse(args, "ipc,init", "ipc"), args);
	assert_ptr_equal(queue_container_refuse(args, "ip,ini", ""), args);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(queues_are_read),
		cmocka_unit_test(wrong_queues_are_refused_by_name),
		cmocka_unit_test(gpu_lists_are_read_in_every_spelling),
		cmocka_unit_test(wrong_gpu_lists_are_refused),
		cmocka_unit_test(test_a_queue_may_have_an_image),
		cmocka_unit_test(test_options_of_containers_are_allowed_and_denied),
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
