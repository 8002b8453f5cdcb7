#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/macros.h"
#include "container/cdi.h"
#include "container/container_args.h"
#include "container/edits.h"
#include "container/env_limits.h"
#include "container/layout.h"
#include "container/wanted.h"

static void device_names_are_those_of_cdi(void **state)
{
	static const char *const good[] = {"s-7k2m9q", "8gib", "a", "a.b_c-d"};
	static const char *const bad[] = {"", "-a", "a-", ".", "a/b", "a b", "a=b", "\xc3\xa4"};
	char longest[CDI_NAME_MAX + 2];

	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_true(cdi_name_valid(good[i]));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(cdi_name_valid(bad[i]));
	memset(longest, 'a', sizeof(longest));
	longest[CDI_NAME_MAX + 1] = '\0';
	assert_false(cdi_name_valid(longest));
	longest[CDI_NAME_MAX] = '\0';
	assert_true(cdi_name_valid(longest));
}

static void a_spec_of_another_program_is_nobodys_session(void **state)
{
	static const char *const others[] = {"nvidia.json",
					     "carve.dev-slice_.json",
					     "carve.dev-slice_s-1.yaml",
					     ".carve.dev-slice_s-1.new",
					     "carve.dev-slice_../x.json",
					     "carve.dev-slice_s-1",
					     "carve.dev-slice_"};
	char id[CDI_NAME_MAX + 1];

	assert_true(cdi_file_session("carve.dev-slice_s-7k2m9q.json", id));
	assert_string_equal(id, "s-7k2m9q");
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		assert_false(cdi_file_session(others[i], id));
}

static void a_spec_has_what_cdi_asks_for(void **state)
{
	json_t *edits = container_edits_new(), *devices = json_array();

	container_edits_mount(edits, "/a", "/b");
	container_edits_mount(edits, "", "/c");
	container_edits_env(edits, "NAME", "a=b");
	container_edits_node(edits, "/dev/null", 0);
	container_edits_node(edits, "/dev/zero", 0660);
	json_array_append_new(devices, cdi_device("one", edits));
	json_t *spec = cdi_spec(CDI_SLICE_KIND, devices, NULL);
	json_t *want = json_pack("{s:s, s:s, s:[{s:s, s:{s:[s], s:[{s:s, s:s, s:[s, s, s, s]}], "
				 "s:[{s:s}, {s:s, s:i}]}}]}",
				 "cdiVersion", "0.5.0", "kind", "carve.dev/slice", "devices",
				 "name", "one", "containerEdits", "env", "NAME=a=b", "mounts",
				 "hostPath", "/a", "containerPath", "/b", "options", "ro", "nosuid",
				 "nodev", "bind", "deviceNodes", "path", "/dev/null", "path",
				 "/dev/zero", "fileMode", 0660);

	assert_true(json_equal(spec, want));
	json_decref(want);
	json_decref(spec);
}

static int limits_of(const char *text, struct container_limits *ret, struct error *err)
{
	json_t *list = json_array();
	char copy[256];

	snprintf(copy, sizeof(copy), "%s", text);
	for (char *rest, *word = strtok_r(copy, " ", &rest); word;
	     word = strtok_r(NULL, " ", &rest))
		json_array_append_new(list, json_string(word));
	*err = (struct error){0};
	int rc = container_limits_read(list, ret, err);
	ret->visible = NULL;
	json_decref(list);
	return rc;
}

static void limits_of_nvidia_that_make_no_sense_are_named(void **state)
{
	static const struct {
		const char *text, *words;
	} cases[] = {
		{"NVIDIA_GPU_MEMORY_LIMIT=4Gi",
		 "NVIDIA_GPU_MEMORY_LIMIT: '4Gi' is no number of MiB"},
		{"NVIDIA_GPU_MEMORY_LIMIT=0", "NVIDIA_GPU_MEMORY_LIMIT: '0' is no number of MiB"},
		{"NVIDIA_GPU_MEMORY_REQUEST=", "NVIDIA_GPU_MEMORY_REQUEST: '' is no number of MiB"},
		{"NVIDIA_GPU_MEMORY_LIMIT=99999999999999999", "is no number of MiB"},
		{"NVIDIA_GPU_MEMORY_REQUEST=2048 NVIDIA_GPU_MEMORY_LIMIT=4096",
		 "NVIDIA_GPU_MEMORY_REQUEST is 2048 MiB and NVIDIA_GPU_MEMORY_LIMIT 4096 MiB, and "
		 "a "
		 "slice has one size"},
	};
	struct container_limits limits;
	struct error err;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_true(limits_of(cases[i].text, &limits, &err) < 0);
		assert_non_null(strstr(err.message, cases[i].words));
	}
}

static void limits_are_read_as_kai_and_hami_write_them(void **state)
{
	static const struct {
		const char *text;
		size_t gpus;
		uint64_t memory;
		uint32_t percent;
	} cases[] = {
		{"PATH=/bin", 1, 0, 0},
		{"CUDA_DEVICE_MEMORY_LIMIT=2027m", 1, MIB(2027), 0},
		{"CUDA_DEVICE_MEMORY_LIMIT=1G CUDA_DEVICE_SM_LIMIT=30", 1, GIB(1), 30},
		{"CUDA_DEVICE_MEMORY_LIMIT=2097152K", 1, GIB(2), 0},
		{"CUDA_DEVICE_MEMORY_LIMIT=1073741824", 1, GIB(1), 0},
		{"CUDA_DEVICE_MEMORY_LIMIT=1g CUDA_DEVICE_MEMORY_LIMIT_0=2g", 1, GIB(2), 0},
		{"CUDA_DEVICE_MEMORY_LIMIT=4g CUDA_DEVICE_MEMORY_LIMIT_1=2g", 1, GIB(4), 0},
		{"CUDA_DEVICE_MEMORY_LIMIT=4g CUDA_DEVICE_MEMORY_LIMIT_1=2g", 2, GIB(2), 0},
		{"CUDA_DEVICE_MEMORY_LIMIT_1=2g", 1, 0, 0},
		{"CUDA_DEVICE_MEMORY_LIMIT=2g CUDA_DEVICE_MEMORY_LIMIT=4g", 1, GIB(2), 0},
		{"CUDA_DEVICE_SM_LIMIT=0", 1, 0, 0},
		{"CUDA_DEVICE_SM_LIMIT=100", 1, 0, 0},
		{"CUDA_DEVICE_SM_LIMIT_0=7 CUDA_DEVICE_SM_LIMIT=50", 1, 0, 7},
		{"CUDA_DEVICE_MEMORY_SHARED_CACHE=/tmp/x", 1, 0, 0},
		{"NVIDIA_GPU_MEMORY_LIMIT=4096", 1, GIB(4), 0},
		{"NVIDIA_GPU_MEMORY_REQUEST=4096", 2, GIB(4), 0},
		{"NVIDIA_GPU_MEMORY_REQUEST=4096 NVIDIA_GPU_MEMORY_LIMIT=4096", 1, GIB(4), 0},
		{"NVIDIA_GPU_MEMORY_LIMIT=4096 CUDA_DEVICE_MEMORY_LIMIT=2g", 1, GIB(2), 0},
		{"NVIDIA_GPU_MEMORY_LIMIT=1024 CUDA_DEVICE_MEMORY_LIMIT_0=2g", 1, GIB(1), 0},
		{"NVIDIA_GPU_MEMORY_LIMITS=1024", 1, 0, 0},
	};
	struct container_limits limits;
	struct error err;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(limits_of(cases[i].text, &limits, &err), 0);
		assert_int_equal(container_limits_memory(&limits, cases[i].gpus), cases[i].memory);
		assert_int_equal(container_limits_percent(&limits, cases[i].gpus),
				 cases[i].percent);
	}
}

/* KAI's pkg/binder/common/gpu_access.go and pkg/scheduler/cache/cache.go: both variables, "%.2f".
 */
static void the_portion_of_kai_is_that_part_of_each_gpu(void **state)
{
	static const struct {
		const char *text, *ids;
		uint64_t memory;
	} cases[] = {
		{"GPU_PORTION=0.50 RUNAI_NUM_OF_GPUS=0.50", "0", MIB(500)},
		{"RUNAI_NUM_OF_GPUS=0.25 NVIDIA_VISIBLE_DEVICES=GPU-a GPU_PORTION=0.25", "1",
		 MIB(500)},
		{"GPU_PORTION=0.25 RUNAI_NUM_OF_GPUS=0.25", "0,1", MIB(250)},
		{"GPU_PORTION=0.25 RUNAI_NUM_OF_GPUS=0.25", "", MIB(250)},
		{"GPU_PORTION=1.00 RUNAI_NUM_OF_GPUS=1.00", "1", MIB(2000)},
		{"GPU_PORTION=0.50 RUNAI_NUM_OF_GPUS=0.50 CUDA_DEVICE_MEMORY_LIMIT=100m", "0",
		 MIB(100)},
		/* Another program's. */
		{"GPU_PORTION=0.50", "0", 0},
		{"GPU_PORTION=half RUNAI_NUM_OF_GPUS=2", "0", 0},
	};
	static const char *const bad[] = {"0.00", "1.50", "half", "", ".", "-0.5", "0.5x"};
	json_t *gpus =
		json_pack("[{s:i, s:I, s:i}, {s:i, s:I, s:I}]", "index", 0, "memory_bytes",
			  (json_int_t)MIB(1000), "reserved_bytes", 0, "index", 1, "memory_bytes",
			  (json_int_t)MIB(2100), "reserved_bytes", (json_int_t)MIB(100));
	struct container_limits limits;
	struct error err;
	char text[96];

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(limits_of(cases[i].text, &limits, &err), 0);
		assert_int_equal(container_limits_memory_of(&limits, gpus, cases[i].ids, 1),
				 cases[i].memory);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		snprintf(text, sizeof(text), "GPU_PORTION=%s RUNAI_NUM_OF_GPUS=%s", bad[i], bad[i]);
		assert_true(limits_of(text, &limits, &err) < 0);
		assert_non_null(strstr(err.message, "GPU_PORTION: '"));
	}
	json_decref(gpus);
}

static void limits_that_make_no_sense_are_refused_by_name(void **state)
{
	static const char *const bad[] = {
		"CUDA_DEVICE_MEMORY_LIMIT=",
		"CUDA_DEVICE_MEMORY_LIMIT=0",
		"CUDA_DEVICE_MEMORY_LIMIT=-1",
		"CUDA_DEVICE_MEMORY_LIMIT=1.5g",
		"CUDA_DEVICE_MEMORY_LIMIT=2027mm",
		"CUDA_DEVICE_MEMORY_LIMIT=2t",
		"CUDA_DEVICE_MEMORY_LIMIT=m",
		"CUDA_DEVICE_MEMORY_LIMIT=99999999999999999999",
		"CUDA_DEVICE_MEMORY_LIMIT=9999999999g",
		"CUDA_DEVICE_SM_LIMIT=101",
		"CUDA_DEVICE_SM_LIMIT=ten",
		"CUDA_DEVICE_SM_LIMIT_3=30%",
	};
	struct container_limits limits;
	struct error err;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_true(limits_of(bad[i], &limits, &err) < 0);
		assert_memory_equal(err.message, bad[i], strcspn(bad[i], "="));
	}
}

static void visible_devices_name_gpus_of_the_host(void **state)
{
	json_t *gpus = json_pack("[{s:i, s:s}, {s:i, s:s}]", "index", 0, "uuid", "GPU-aa-1",
				 "index", 1, "uuid", "GPU-BB-2");
	static const char *const bad[] = {"2", "GPU-aa", "MIG-aa-1", "0,,1", "0:1", "0,"};
	char ids[CONTAINER_GPU_IDS_SIZE];
	struct error err;
	size_t count;

	assert_int_equal(container_limits_gpus("GPU-bb-2,0", gpus, ids, &count, &err), 0);
	assert_string_equal(ids, "1,0");
	assert_int_equal(count, 2);
	assert_int_equal(container_limits_gpus("all", gpus, ids, &count, &err), 0);
	assert_int_equal(count, 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_true(container_limits_gpus(bad[i], gpus, ids, &count, &err) < 0);
	assert_true(container_limits_no_gpu("void") && container_limits_no_gpu(""));
	assert_false(container_limits_no_gpu(NULL) || container_limits_no_gpu("all"));
	json_decref(gpus);
}

static void a_wrong_value_of_a_label_is_told_by_the_labels_name(void **state)
{
	static const struct {
		const char *message, *hint, *told, *hinted;
	} cases[] = {
		{"vram: 'x' is wrong", "'vram' takes a text", "carve.vram: 'x' is wrong",
		 "for example carve.vram=8GiB"},
		{"--vram: 'x' is wrong", "for example: --vram 4", "carve.vram: 'x' is wrong",
		 "for example carve.vram=8GiB"},
		{"gpu_ids: there is no GPU 9", "see `carve gpu list`",
		 "carve.gpu-ids: there is no GPU 9", "see `carve gpu list`"},
		{"gpu: not asked for", "--gpu", "gpu: not asked for", "--gpu"},
		{"vramp: other", "h", "vramp: other", "h"},
		{"vram", "h", "vram", "h"},
		{"", "", "", ""},
	};
	json_t *wanted = json_pack("{s:s, s:s}", "vram", "x", "gpu_ids", "9");

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct error err = {0};

		error_set(&err, EXIT_CODE_USAGE, "%s", cases[i].message);
		error_hint(&err, "%s", cases[i].hint);
		container_error_name_label(wanted, &err);
		assert_string_equal(err.message, cases[i].told);
		assert_string_equal(err.hint, cases[i].hinted);
	}
	json_decref(wanted);
}

static const char *joined(const struct words *words)
{
	static char text[256];
	size_t used = 0;

	text[0] = '\0';
	for (size_t i = 0; i < words->count && used < sizeof(text); i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s", used ? " " : "",
					 words->list[i]);
	return text;
}

static void options_of_a_runtime_stand_on_both_sides_of_run(void **state)
{
	static const struct {
		const char *runtime;
		const char *words[12]; /* "run" ends the first part */
		const char *slice, *global, *options, *everywhere;
	} cases[] = {
		{"podman",
		 {"--root", "/r", "--vram", "2", "run", "--rm", "image"},
		 "--vram 2",
		 "--root /r",
		 "--rm",
		 "--root /r"},
		{"podman",
		 {"run", "--root=/r", "--vram=2", "--storage-opt", "a=b", "-it", "image"},
		 "--vram=2",
		 "",
		 "--root=/r --storage-opt a=b -it",
		 "--root=/r --storage-opt a=b"},
		{"podman",
		 {"-r", "--vram-strict", "--transient-store", "run", "image"},
		 "--vram-strict",
		 "-r --transient-store",
		 "",
		 "-r --transient-store"},
		{"docker",
		 {"-D", "-H", "unix:///s", "-c", "here", "run", "-c", "512", "image"},
		 "",
		 "-D -H unix:///s -c here",
		 "-c 512",
		 "-D -H unix:///s -c here"},
		{"docker",
		 {"-Hunix:///s", "run", "--root", "/r", "image"},
		 "",
		 "-Hunix:///s",
		 "--root /r",
		 "-Hunix:///s --root /r"},
		{"apptainer",
		 {"-q", "-c", "f", "--gpu", "1", "run", "--nv", "image"},
		 "--gpu 1",
		 "-q -c f",
		 "--nv",
		 "-q -c f"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct container_args args = {0};
		enum container_syntax global;
		struct error err = {0};
		char *words[12];

		memcpy(words, cases[i].words, sizeof(words));
		assert_true(container_syntax_global(cases[i].runtime, &global));
		size_t count = container_args_global_count(words, global);
		assert_string_equal(words[count], "run");
		assert_int_equal(container_args_read(words, count, global, words + count + 1,
						     strcmp(cases[i].runtime, "apptainer")
							     ? CONTAINER_SYNTAX_OCI
							     : CONTAINER_SYNTAX_APPTAINER,
						     &args, &err),
				 0);
		assert_string_equal(*args.image, "image");
		assert_string_equal(joined(&args.slice), cases[i].slice);
		assert_string_equal(joined(&args.global), cases[i].global);
		assert_string_equal(joined(&args.options), cases[i].options);
		assert_string_equal(joined(&args.everywhere), cases[i].everywhere);
		container_args_free(&args);
	}
}

static void the_verb_may_be_missing_behind_options(void **state)
{
	char *words[] = {"--vram", "2", NULL}, *cut[] = {"--log-level", NULL}, *none[] = {NULL};
	enum container_syntax global;

	assert_false(container_syntax_global("session", &global));
	assert_true(container_syntax_global("podman", &global));
	assert_int_equal(container_args_global_count(words, global), 2);
	assert_int_equal(container_args_global_count(cut, global), 1);
	assert_int_equal(container_args_global_count(none, global), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(device_names_are_those_of_cdi),
		cmocka_unit_test(a_spec_of_another_program_is_nobodys_session),
		cmocka_unit_test(a_spec_has_what_cdi_asks_for),
		cmocka_unit_test(limits_are_read_as_kai_and_hami_write_them),
		cmocka_unit_test(limits_of_nvidia_that_make_no_sense_are_named),
		cmocka_unit_test(the_portion_of_kai_is_that_part_of_each_gpu),
		cmocka_unit_test(limits_that_make_no_sense_are_refused_by_name),
		cmocka_unit_test(visible_devices_name_gpus_of_the_host),
		cmocka_unit_test(options_of_a_runtime_stand_on_both_sides_of_run),
		cmocka_unit_test(the_verb_may_be_missing_behind_options),
		cmocka_unit_test(a_wrong_value_of_a_label_is_told_by_the_labels_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
