/* The texts that carve's Kubernetes programs read: quantities, claims, names of templates, and
 * messages. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/macros.h"
#include "client/client.h"
#include "integrations/kubernetes/api/leader.h"
#include "integrations/kubernetes/api/retry.h"
#include "integrations/kubernetes/claim/checkpoint.h"
#include "integrations/kubernetes/claim/reserve.h"
#include "integrations/kubernetes/grpc/grpc_private.h"
#include "integrations/kubernetes/node/calls.h"
#include "integrations/kubernetes/node/role.h"
#include "integrations/kubernetes/object/claim.h"
#include "integrations/kubernetes/object/node_labels.h"
#include "integrations/kubernetes/object/quantity.h"
#include "integrations/kubernetes/object/slices.h"
#include "integrations/kubernetes/object/template.h"
#include "integrations/kubernetes/object/yaml_json.h"
#include "integrations/kubernetes/pod/follow.h"
#include "integrations/kubernetes/pod/pod_template.h"

static void test_quantities_are_read_as_kubernetes_writes_them(void **state)
{
	static const struct {
		const char *text;
		uint64_t value;
	} good[] = {
		{"0", 0},
		{"10Gi", 10ull << 30},
		{"4G", 4000000000ull},
		{"500m", 1},
		{"1500m", 2},
		{"1e3", 1000},
		{"1E", 1000000000000000000ull},
		{"1.5Ki", 1536},
		{"0.1", 1},
		{"12E2", 1200},
		{"+7", 7},
		{"1n", 1},
		{"4095999999n", 5},
		{".5Gi", 1ull << 29},
	};
	static const char *const bad[] = {"",     "-1",  "x",    "1 Gi", "1GiB", "9Ei9", "1e", "e3",
					  "1e99", "8Ei", "1..2", ".",    "1e 3", "0x10", "1K"};
	uint64_t value;

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		assert_int_equal(quantity_parse(good[i].text, &value), 0);
		assert_int_equal(value, good[i].value);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(quantity_parse(bad[i], &value), -EINVAL);
}

static void test_quantities_are_compared_with_their_decimals(void **state)
{
	static const struct {
		const char *a, *b;
		bool equal;
	} cases[] = {
		{"12500m", "12.5", true},    {"12500m", "13", false},
		{"12500m", "12501m", false}, {"81920Mi", "80Gi", true},
		{"1e3", "1000", true},       {"33.3333", "33333300u", true},
		{"7E", "7000P", true},       {"7E", "6999999999999999999", false},
		{"x", "x", false},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_true(quantity_equal(cases[i].a, cases[i].b) == cases[i].equal);
}

static int claim_read(const char *result, struct claim *claim, struct error *err)
{
	cleanup_json json_t *json =
		json_pack("{s:{s:s}, s:{s:{s:{s:[o]}}}}", "metadata", "uid", "u-1", "status",
			  "allocation", "devices", "results", json_loads(result, 0, NULL));

	return claim_parse(json, "gpu.carve.dev", claim, err);
}

#define RESULT(more)                                                                              \
	"{\"request\": \"gpu/big\", \"driver\": \"gpu.carve.dev\", \"pool\": \"n\", \"device\": " \
	"\"gpu-1\"" more "}"

static void test_a_claim_names_requests_without_their_alternatives(void **state)
{
	struct claim claim;
	struct error err = {0};

	assert_int_equal(
		claim_read(
			RESULT(", \"consumedCapacity\": {\"memory\": \"1Gi\", \"cores\": \"25\"}"),
			&claim, &err),
		0);
	assert_string_equal(claim.device[0].request, "gpu");
	assert_int_equal(claim.device[0].memory, 1 << 30);
	assert_int_equal(claim.device[0].share_ppm, 250000);
}

static void test_a_claim_has_its_part_of_the_time_to_a_millionth(void **state)
{
	static const struct {
		const char *cores, *text;
		uint32_t share_ppm;
	} cases[] = {{"12500m", "12.5", 125000}, {"33333300u", "33.3333", 333333},
		     {"100", "100", 1000000},    {"0", "0", 0},
		     {"12.5", "12.5", 125000},   {"100u", "0.0001", 1}};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char result[256], text[CLAIM_CORES_SIZE];
		struct claim claim;
		struct error err = {0};

		snprintf(result, sizeof(result),
			 RESULT(", \"consumedCapacity\": {\"memory\": \"1Gi\", \"cores\": \"%s\"}"),
			 cases[i].cores);
		assert_int_equal(claim_read(result, &claim, &err), 0);
		assert_int_equal(claim.device[0].share_ppm, cases[i].share_ppm);
		assert_string_equal(claim_cores_format(cases[i].share_ppm, text), cases[i].text);
	}
}

static void test_a_claim_of_a_pods_size_is_made_of_carves_template(void **state)
{
	static const struct {
		const char *annotations;
		bool taken;
	} cases[] = {
		{"{\"resource.kubernetes.io/pod-claim-name\": \"carve-gpu\"}", false},
		{"{\"resource.kubernetes.io/pod-claim-name\": \"carve-gpu\", "
		 "\"carve.dev/template\": \"carve-fraction-0.2\"}",
		 true},
		{"{\"resource.kubernetes.io/pod-claim-name\": \"gpu\"}", true},
		{"{}", true},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		cleanup_json json_t *json = json_pack(
			"{s:{s:s, s:o}, s:{s:{s:{s:[o]}}}}", "metadata", "uid", "u-1",
			"annotations", json_loads(cases[i].annotations, 0, NULL), "status",
			"allocation", "devices", "results", json_loads(RESULT(""), 0, NULL));
		struct claim claim;
		struct error err = {0};

		assert_true((claim_parse(json, "gpu.carve.dev", &claim, &err) == 0) ==
			    cases[i].taken);
		assert_true(cases[i].taken || strstr(err.message, "carve did not make"));
	}
}

static void test_a_claim_that_makes_no_sense_is_refused(void **state)
{
	static const char *const bad[] = {
		RESULT(", \"consumedCapacity\": {\"memory\": 5}"),
		RESULT(", \"consumedCapacity\": {\"memory\": \"1Gi\", \"cores\": \"101\"}"),
		RESULT(", \"shareID\": \"../x\""),
		"{\"request\": \"a/../b\", \"driver\": \"gpu.carve.dev\", \"pool\": \"n\", "
		"\"device\": \"../gpu\"}",
		"{\"request\": \"gpu\", \"driver\": \"other\", \"pool\": \"n\", \"device\": "
		"\"gpu-1\"}",
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct claim claim;
		struct error err = {0};

		assert_true(claim_read(bad[i], &claim, &err) < 0);
		assert_true(err.message[0]);
	}
}

static void test_names_of_templates_say_the_size(void **state)
{
	static const char *const bad[] = {"carve-fraction-1.25",
					  "carve-fraction-",
					  "carve-memory-0",
					  "carve-memory-4G",
					  "carve-x",
					  "carve-memory-1-x33",
					  "carve-fraction-2",
					  "carve-memory-1-c0",
					  "carve-memory-1-c101",
					  "carve-memory-1.use.",
					  "carve-memory-1.use.A100",
					  "carve-memory-1.use.a..b",
					  "carve-memory-1.not.a'",
					  "carve-memory-1-x2-c30"};
	struct template_size size;

	assert_int_equal(template_parse("carve-fraction-0.500-x2", &size), 0);
	assert_int_equal(size.share, 500000);
	assert_int_equal(size.gpu_count, 2);
	assert_int_equal(template_parse("carve-memory-4096", &size), 0);
	assert_int_equal(size.memory, 4096);
	assert_int_equal(size.time_ppm, 0);
	assert_int_equal(template_parse("carve-fraction-0.5-c30-x2.use.a100.l40.not.pcie", &size),
			 0);
	assert_int_equal(size.share, 500000);
	assert_int_equal(size.time_ppm, 300000);
	assert_int_equal(size.gpu_count, 2);
	assert_string_equal(size.use, "a100.l40");
	assert_string_equal(size.avoid, "pcie");
	assert_int_equal(template_parse("carve-memory-4096.not.k80-x2", &size), 0);
	assert_string_equal(size.avoid, "k80-x2");
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(template_parse(bad[i], &size), -EINVAL);
}

static void test_a_dropped_field_is_named(void **state)
{
	cleanup_json json_t *wanted =
		json_loads("{\"a\": [{\"b\": {\"c\": \"1024Mi\"}}]}", 0, NULL);
	cleanup_json json_t *same =
		json_loads("{\"a\": [{\"b\": {\"c\": \"1Gi\", \"d\": 1}}]}", 0, NULL);
	cleanup_json json_t *less = json_loads("{\"a\": [{\"b\": {}}]}", 0, NULL);
	char path[64];

	assert_true(slices_contain(same, wanted, path, sizeof(path)));
	assert_false(slices_contain(less, wanted, path, sizeof(path)));
	assert_string_equal(path, "a[0].b.c");
}

static void test_a_taint_that_is_over_is_a_difference(void **state)
{
	cleanup_json json_t *wanted = json_loads("{\"devices\": [{\"name\": \"a\"}]}", 0, NULL);
	cleanup_json json_t *tainted = json_loads(
		"{\"devices\": [{\"name\": \"a\", \"taints\": [{\"key\": \"x\"}]}]}", 0, NULL);

	assert_true(slices_have_more(tainted, wanted));
	assert_false(slices_have_more(wanted, tainted));
	assert_false(slices_have_more(wanted, wanted));
}

static void test_names_of_profiles_that_differ_by_a_sign_are_different_devices(void **state)
{
	struct device_gpu gpu = {.name = "gpu-1", .profiles = 2};
	struct device_profile plus = {.name = "1g.24gb+me"}, minus = {.name = "1g.24gb-me"},
			      all = {.name = "1g.24gb+me.all"}, odd = {.name = "1g 24gb"};
	char a[DEVICE_NAME_SIZE], b[DEVICE_NAME_SIZE];
	const struct device_profile *found;
	unsigned start;

	assert_string_equal(device_instance_name(&gpu, &plus, 3, a), "gpu-1-1g-24gb-plus-me-3");
	assert_string_equal(device_instance_name(&gpu, &minus, 3, b), "gpu-1-1g-24gb-me-3");
	assert_string_equal(device_instance_name(&gpu, &all, 11, b),
			    "gpu-1-1g-24gb-plus-me-all-11");
	assert_null(device_instance_name(&gpu, &odd, 0, b));
	gpu.profile[0] = minus;
	gpu.profile[1] = plus;
	gpu.profile[0].starts = gpu.profile[1].starts = 0xf;
	assert_ptr_equal(device_instance_find(&gpu, 1, a, &found, &start), &gpu);
	assert_ptr_equal(found, &gpu.profile[1]);
	assert_int_equal(start, 3);
	assert_null(device_instance_find(&gpu, 1, "gpu-1-1g-24gb-me-4", &found, &start));
	/* With the UUID of a real GPU the longest names fit. */
	snprintf(gpu.name, sizeof(gpu.name), "gpu-01234567-89ab-cdef-0123-456789abcdef");
	assert_non_null(device_instance_name(&gpu, &plus, 11, a));
	assert_non_null(device_instance_name(&gpu, &all, 11, a));
}

static void test_replicas_of_one_share_no_gpu(void **state)
{
	static const struct {
		const char *text;
		unsigned replicas;
	} cases[] = {{"4", 4}, {"2", 2}, {"1", 0}, {"0", 0}, {"-3", 0}, {"1001", 0}, {"4x", 0}};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		json_t *labels = json_pack("{s:s}", NODE_LABEL_REPLICAS, cases[i].text);

		assert_int_equal(node_labels_replicas(labels), cases[i].replicas);
		json_decref(labels);
	}
	assert_int_equal(node_labels_replicas(NULL), 0);
}

static void test_a_label_of_a_node_whose_value_means_nothing_is_named(void **state)
{
	static const struct {
		const char *key, *value;
		bool good;
	} cases[] = {
		{NODE_LABEL_REPLICAS, "4", true},     {NODE_LABEL_REPLICAS, "1000", true},
		{NODE_LABEL_REPLICAS, "1", true},     {NODE_LABEL_REPLICAS, "0", true},
		{NODE_LABEL_REPLICAS, "1001", false}, {NODE_LABEL_REPLICAS, "many", false},
		{NODE_LABEL_REPLICAS, "", false},     {NODE_LABEL_REPLICAS, "4.5", false},
		{NODE_LABEL_RUNAI, "true", true},     {NODE_LABEL_RUNAI, "false", true},
		{NODE_LABEL_RUNAI, "", false},        {NODE_LABEL_RUNAI, "True", false},
		{NODE_LABEL_CLEARML, "mig", true},    {NODE_LABEL_CLEARML, "none", true},
		{NODE_LABEL_CLEARML, "MIG", false},   {"other", "many", true},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		cleanup_json json_t *labels = json_pack("{s:s}", cases[i].key, cases[i].value);
		struct error errors[NODE_LABELS];
		unsigned named = 0;

		assert_int_equal(node_labels_check(labels, true, errors), !cases[i].good);
		for (size_t k = 0; k < NODE_LABELS; k++)
			named += strstr(errors[k].message, cases[i].key) &&
				 strstr(errors[k].hint, cases[i].key);
		assert_int_equal(named, !cases[i].good);
		if (!strcmp(cases[i].key, NODE_LABEL_REPLICAS))
			assert_int_equal(node_labels_check(labels, false, errors), 0);
	}
}

static void test_each_of_several_wrong_labels_is_named(void **state)
{
	cleanup_json json_t *labels = json_pack("{s:s, s:s, s:s}", NODE_LABEL_REPLICAS, "many",
						NODE_LABEL_RUNAI, "yes", NODE_LABEL_CLEARML, "MIG");
	struct error errors[NODE_LABELS];

	assert_int_equal(node_labels_check(labels, true, errors), 3);
	assert_true(errors[0].code && errors[1].code && errors[2].code);
	assert_int_equal(node_labels_check(labels, false, errors), 2);
	assert_false(errors[0].code);
	assert_int_equal(node_labels_check(NULL, true, errors), 0);
}

static void test_a_role_that_no_label_set_is_left_alone(void **state)
{
	static const struct {
		const char *labels;
		enum role_order without, with; /* a label that set it before */
	} cases[] = {
		{"{}", ROLE_KEEP, ROLE_REMOVE},
		{"{\"" NODE_LABEL_RUNAI "\": \"true\"}", ROLE_SET, ROLE_SET},
		{"{\"" NODE_LABEL_RUNAI "\": \"false\"}", ROLE_KEEP, ROLE_REMOVE},
		{"{\"" NODE_LABEL_CLEARML "\": \"mig\"}", ROLE_SET, ROLE_SET},
		{"{\"" NODE_LABEL_CLEARML "\": \"none\"}", ROLE_KEEP, ROLE_REMOVE},
		{"{\"" NODE_LABEL_RUNAI "\": 1}", ROLE_KEEP, ROLE_REMOVE},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		cleanup_json json_t *labels = json_loads(cases[i].labels, 0, NULL);

		assert_int_equal(role_of_labels(labels, false), cases[i].without);
		assert_int_equal(role_of_labels(labels, true), cases[i].with);
	}
	assert_int_equal(role_of_labels(NULL, false), ROLE_KEEP);
}

static void test_a_lease_is_taken_by_this_clock_alone(void **state)
{
	struct leader leader = {.identity = "me"};
	cleanup_json json_t *lease = json_loads("{\"metadata\": {\"resourceVersion\": \"1\"}, "
						"\"spec\": {\"holderIdentity\": \"other\","
						" \"renewTime\": \"1999-01-01T00:00:00Z\"}}",
						0, NULL);

	assert_false(leader_may_take(&leader, lease, 1000));
	assert_false(leader_may_take(&leader, lease, 1000 + LEADER_LEASE_MS - 1));
	json_object_set_new(json_object_get(lease, "metadata"), "resourceVersion",
			    json_string("2"));
	assert_false(leader_may_take(&leader, lease, 1000 + LEADER_LEASE_MS));
	assert_true(leader_may_take(&leader, lease, 1000 + 2 * LEADER_LEASE_MS));
	json_object_set_new(json_object_get(lease, "spec"), "holderIdentity", json_string(""));
	assert_true(leader_may_take(&leader, lease, 1000 + 2 * LEADER_LEASE_MS));
}

static void test_a_checkpoint_reads_what_it_wrote(void **state)
{
	struct stored_claim claim = {.state = STORED_PREPARED,
				     .namespace = "team",
				     .name = "c",
				     .claim = {.uid = "u-1", .count = 1},
				     .slices = 1};
	struct stored_claim read = {0};

	claim.claim.device[0] = (struct claim_device){.request = "gpu",
						      .pool = "n",
						      .name = "gpu-1",
						      .memory = 1 << 30,
						      .share_ppm = 125001};
	claim.slice[0] = (struct stored_slice){.session = "s-abcdef", .end = 1};
	cleanup_json json_t *json = checkpoint_claim_json(&claim);
	assert_int_equal(checkpoint_claim_parse(json, &read), 0);
	assert_int_equal(read.state, STORED_PREPARED);
	assert_memory_equal(&read.claim.device[0], &claim.claim.device[0],
			    sizeof(struct claim_device));
	assert_string_equal(read.slice[0].session, "s-abcdef");
	json_object_set_new(json_array_get(json_object_get(json, "slices"), 0), "end",
			    json_integer(2));
	assert_int_equal(checkpoint_claim_parse(json, &read), -EINVAL);
}

static void test_messages_are_framed(void **state)
{
	static const uint8_t whole[] = {0, 0, 0, 0, 2, 'a', 'b'}, packed[] = {1, 0, 0, 0, 0},
			     two[] = {0, 0, 0, 0, 0, 0};
	const uint8_t *message;
	size_t size;
	char text[16];

	assert_int_equal(grpc_message_find(whole, sizeof(whole), &message, &size), 0);
	assert_int_equal(size, 2);
	assert_int_equal(grpc_message_find(whole, sizeof(whole) - 1, &message, &size), -EAGAIN);
	assert_int_equal(grpc_message_find(packed, sizeof(packed), &message, &size), -ENOTSUP);
	assert_int_equal(grpc_message_find(two, sizeof(two), &message, &size), -EBADMSG);
	assert_string_equal(grpc_message_encode("5% \n", text, sizeof(text)), "5%25 %0A");
	assert_string_equal(grpc_message_encode("abcdefghijklmnopqrstuvwxyz", text, sizeof(text)),
			    "abcdefghijklm");
}

static void test_reservations_are_made_one_by_one_until_one_has_the_gpu(void **state)
{
	const struct reserve_pod none[1] = {{.state = RESERVE_STARTS}};
	const struct reserve_pod pods[] = {
		{.state = RESERVE_HOLDS, .uuid = "GPU-a", .wanted = true},
		{.state = RESERVE_HOLDS, .uuid = "GPU-b"},
		{.state = RESERVE_GOING, .uuid = "GPU-c"},
		{.state = RESERVE_FAILED},
	};

	assert_int_equal(reserve_decide(none, 0, "GPU-a"), RESERVE_MAKE);
	assert_int_equal(reserve_decide(none, 1, "GPU-a"), RESERVE_WAIT);
	assert_int_equal(reserve_decide(pods, 4, "GPU-b"), RESERVE_DONE);
	/* One that is being deleted holds its GPU for no claim, and frees it in a moment. */
	assert_int_equal(reserve_decide(pods, 3, "GPU-c"), RESERVE_WAIT);
	assert_int_equal(reserve_decide(pods, 2, "GPU-c"), RESERVE_MAKE);
	assert_int_equal(reserve_decide(pods, 4, "GPU-c"), RESERVE_EXHAUSTED);
}

static void test_yaml_scalars_are_what_kubernetes_takes_them_for(void **state)
{
	static const char text[] =
		"a: 1\nb: '1'\nc: true\nd: ~\ne: 0.5\nf: 1Gi\ng: yes\nh: [x, {i: -3}]\n"
		"j: |\n  two\n  lines\n";
	json_t *is = NULL,
	       *wanted = json_loads("{\"a\":1,\"b\":\"1\",\"c\":true,\"d\":null,\"e\":0.5,\"f\":"
				    "\"1Gi\",\"g\":\"yes\","
				    "\"h\":[\"x\",{\"i\":-3}],\"j\":\"two\\nlines\\n\"}",
				    0, NULL);
	struct error err = {0};

	assert_int_equal(yaml_json_load(text, sizeof(text) - 1, &is, &err), 0);
	assert_true(json_equal(is, wanted));
	json_decref(is);
	json_decref(wanted);
}

/* The template of a file; the caller frees it. */
static json_t *template_read(const char *text)
{
	json_t *file = NULL, *template = NULL;
	struct error err = {0};

	assert_int_equal(yaml_json_load(text, strlen(text), &file, &err), 0);
	assert_int_equal(pod_template_parse(file, &template, &err), 0);
	json_decref(file);
	return template;
}

static void test_overrides_are_merged_by_name_and_null_takes_away(void **state)
{
	json_t *template = template_read(
		"basePodTemplate: {nodeSelector: {a: b, c: d}, env: [{name: A, value: '1'}]}\n"
		"queues: {q: {templateOverrides: {nodeSelector: {a: null}, env: [{name: A, value: "
		"'2'}]}}}");
	json_t *wanted = json_loads("{\"spec\":{\"nodeSelector\":{\"c\":\"d\"},\"containers\":[{"
				    "\"name\":\"main\",\"env\":"
				    "[{\"name\":\"A\",\"value\":\"2\"}]}]}}",
				    0, NULL);

	assert_true(json_equal(pod_template_of(template, "q"), wanted));
	assert_false(json_equal(pod_template_of(template, "other"), wanted));
	json_decref(template);
	json_decref(wanted);
}

static const char *product_of(const json_t *template)
{
	const json_t *spec = json_object_get(pod_template_of(template, NULL), "spec");

	return json_string_value(json_object_get(json_object_get(spec, "nodeSelector"), "gpu"));
}

static void test_nodes_are_selected_beside_the_base_or_in_it(void **state)
{
	json_t *beside = template_read("agentk8sglue: {queue: default, nodeSelector: {gpu: a}, "
				       "basePodTemplate: {image: i}}");
	json_t *both = template_read("agentk8sglue: {nodeSelector: {gpu: a}, basePodTemplate: "
				     "{nodeSelector: {gpu: b}}}");

	assert_string_equal(product_of(beside), "a");
	assert_string_equal(product_of(both), "b");
	json_decref(beside);
	json_decref(both);
}

/* In the time of these waits alone. */
static void test_an_api_server_that_is_away_for_an_hour_hears_little(void **state)
{
	static const unsigned randoms[] = {0, 1, 29999, 30000, 4294967295u, 12345};

	for (size_t i = 0; i < ARRAY_SIZE(randoms); i++) {
		uint64_t passed_ms = 0;
		unsigned calls = 0, wait = 0;

		while (passed_ms < 3600000) {
			wait = retry_wait_ms(calls, randoms[i]);
			assert_in_range(wait, 500, 60000);
			passed_ms += wait;
			calls++;
		}
		assert_in_range(calls, 60, 126);
		/* One that comes back is noticed within a minute. */
		assert_in_range(wait, 30000, 60000);
	}
	assert_in_range(retry_wait_ms(0, 4294967295u), 500, 1000);
	assert_in_range(retry_wait_ms(4294967295u, 7), 30000, 60000);
}

static void test_a_mark_of_a_pod_names_its_interval(void **state)
{
	static const char *const bad[] = {"",      "1",         "/1",    "1/",
					  "x/300", "1/3000000", "1/-3",  "1/86401",
					  "1/3 ",  "yesterday", "-1/300"};
	uint64_t interval;

	assert_true(follow_mark_read("1795724979/300", &interval));
	assert_int_equal(interval, 300);
	assert_true(follow_mark_read("7/0", &interval));
	assert_int_equal(interval, 0);
	assert_false(follow_mark_read(NULL, &interval));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(follow_mark_read(bad[i], &interval));
}

/* Every way through the states: one answer, and the end only once no thread has it. */
static void calls_walk(enum call_state state, bool runs, unsigned answers, unsigned depth)
{
	if (state == CALL_OVER) {
		assert_int_equal(answers, 1);
		assert_false(runs);
		return;
	}
	for (int event = 0; depth && event < CALL_EVENTS; event++) {
		enum call_state next;

		if (!call_state_next(state, (enum call_event)event, &next))
			continue;
		bool answered = next != state && (event == CALL_EVENT_TIME_UP ||
						  (event == CALL_EVENT_DONE && state == CALL_RUNS));
		assert_true(event != CALL_EVENT_DONE || runs);
		assert_true(event != CALL_EVENT_BEGIN || !runs);
		calls_walk(next,
			   event == CALL_EVENT_BEGIN  ? true
			   : event == CALL_EVENT_DONE ? false
						      : runs,
			   answers + answered, depth - 1);
	}
}

static void test_a_call_of_the_kubelet_is_answered_once(void **state)
{
	enum call_state next;

	calls_walk(CALL_WAITS, false, 0, 8);
	for (int event = 0; event < CALL_EVENTS; event++)
		assert_false(call_state_next(CALL_OVER, (enum call_event)event, &next));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_call_of_the_kubelet_is_answered_once),
		cmocka_unit_test(test_quantities_are_read_as_kubernetes_writes_them),
		cmocka_unit_test(test_a_claim_names_requests_without_their_alternatives),
		cmocka_unit_test(test_quantities_are_compared_with_their_decimals),
		cmocka_unit_test(test_a_claim_has_its_part_of_the_time_to_a_millionth),
		cmocka_unit_test(test_a_claim_of_a_pods_size_is_made_of_carves_template),
		cmocka_unit_test(test_a_claim_that_makes_no_sense_is_refused),
		cmocka_unit_test(test_names_of_templates_say_the_size),
		cmocka_unit_test(test_a_dropped_field_is_named),
		cmocka_unit_test(test_a_taint_that_is_over_is_a_difference),
		cmocka_unit_test(
			test_names_of_profiles_that_differ_by_a_sign_are_different_devices),
		cmocka_unit_test(test_a_label_of_a_node_whose_value_means_nothing_is_named),
		cmocka_unit_test(test_each_of_several_wrong_labels_is_named),
		cmocka_unit_test(test_a_role_that_no_label_set_is_left_alone),
		cmocka_unit_test(test_replicas_of_one_share_no_gpu),
		cmocka_unit_test(test_a_lease_is_taken_by_this_clock_alone),
		cmocka_unit_test(test_an_api_server_that_is_away_for_an_hour_hears_little),
		cmocka_unit_test(test_a_mark_of_a_pod_names_its_interval),
		cmocka_unit_test(test_a_checkpoint_reads_what_it_wrote),
		cmocka_unit_test(test_messages_are_framed),
		cmocka_unit_test(test_reservations_are_made_one_by_one_until_one_has_the_gpu),
		cmocka_unit_test(test_yaml_scalars_are_what_kubernetes_takes_them_for),
		cmocka_unit_test(test_overrides_are_merged_by_name_and_null_takes_away),
		cmocka_unit_test(test_nodes_are_selected_beside_the_base_or_in_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
