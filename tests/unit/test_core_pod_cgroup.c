#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/macros.h"
#include "core/pod_cgroup.h"

#define UID "0c9f4a2e-41d2-4f4e-9b0a-2c9a7d5e8f11"
#define OTHER_UID "7d5e8f11-41d2-4f4e-9b0a-2c9a0c9f4a2e"

/* How kubelets and runtimes name cgroups: the text of carved, and of processes beside it. */
static const struct layout {
	const char *carved, *same, *other;
} layouts[] = {
	{"0::/kubepods/burstable/pod" UID "/aaaa\n", "0::/kubepods/burstable/pod" UID "/bbbb\n",
	 "0::/kubepods/burstable/pod" OTHER_UID "/aaaa\n"},
	{"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0c9f_4a2e.slice/"
	 "cri-containerd-aaaa.scope\n",
	 "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0c9f_4a2e.slice/"
	 "crio-bbbb.scope/container\n",
	 "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0c9f_4a2.slice/"
	 "cri-containerd-aaaa.scope\n"},
	{"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podaaaa.slice/x.scope\n",
	 "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podaaaa.slice/y.scope\n",
	 "0::/kubelet.slice/kubelet-kubepods.slice/y.scope\n"},
	/* Version 1: each controller has a path, and each has to be in the pod. */
	{"12:cpu,cpuacct:/kubepods/pod" UID "/aaaa\n1:name=systemd:/kubepods/pod" UID
	 "/aaaa\n0::/system.slice/containerd.service\n",
	 "12:cpu,cpuacct:/kubepods/pod" UID "/bbbb\n1:name=systemd:/kubepods/pod" UID
	 "/bbbb\n0::/system.slice/containerd.service\n",
	 "12:cpu,cpuacct:/kubepods/pod" UID "/bbbb\n1:name=systemd:/user.slice\n"
	 "0::/system.slice/containerd.service\n"},
	/* A cluster in a pod of another cluster. */
	{"0::/kubepods/pod" OTHER_UID "/aaaa/kubepods/pod" UID "/cccc\n",
	 "0::/kubepods/pod" OTHER_UID "/aaaa/kubepods/pod" UID "/dddd\n",
	 "0::/kubepods/pod" OTHER_UID "/aaaa/kubepods/podother/cccc\n"},
};

static void containers_of_a_pod_are_in_it_and_others_are_not(void **state)
{
	char pod[512];

	for (size_t i = 0; i < ARRAY_SIZE(layouts); i++) {
		const struct layout *l = &layouts[i];

		assert_true(pod_cgroup_find(l->carved, pod, sizeof(pod)));
		assert_true(pod_cgroup_holds(pod, l->carved));
		assert_true(pod_cgroup_holds(pod, l->same));
		assert_false(pod_cgroup_holds(pod, l->other));
	}
}

static void no_process_outside_is_taken_in_by_names_of_its_own(void **state)
{
	static const char *const outside[] = {
		/* In its own container it may make cgroups of any name. */
		"0::/kubepods/pod" OTHER_UID "/aaaa/kubepods/pod" UID "/bbbb\n",
		"0::/user.slice/pod" UID "/aaaa\n",
		/* The pod's own cgroup is the kubelet's. */
		"0::/kubepods/pod" UID "\n",
		"0::/kubepods/pod" UID "/\n",
		"0::/kubepods/pod" UID "x/aaaa\n",
		"0::/\n",
		"0::/../aaaa\n",
		"1:pids:/kubepods/pod" UID "/aaaa\n",
		"",
	};
	char pod[512];

	assert_true(pod_cgroup_find("0::/kubepods/pod" UID "/aaaa\n", pod, sizeof(pod)));
	for (size_t i = 0; i < ARRAY_SIZE(outside); i++)
		assert_false(pod_cgroup_holds(pod, outside[i]));
}

static void a_process_in_no_pod_has_none(void **state)
{
	static const char *const texts[] = {
		"",
		"\n",
		"0::/\n",
		"0::/system.slice/carved.service\n",
		"0::/system.slice/docker-pod.scope\n",
		"0::/user.slice/user-1000.slice/pod\n",
		/* Whether a last name is a pod's or a container's cannot be told. */
		"0::/kubepods/pod" UID "\n",
		"0::/kubepods/pod" UID "/\n",
		"0::/machine.slice/machine-libpod_pod_aaaa.slice/libpod-bbbb.scope\n",
		"garbage",
	};
	char pod[512] = "none";

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		assert_false(pod_cgroup_find(texts[i], pod, sizeof(pod)));
	assert_false(pod_cgroup_holds("", "0::/kubepods/pod" UID "/aaaa\n"));
}

static void a_text_that_does_not_fit_names_no_pod(void **state)
{
	static const char text[] = "0::/kubepods/pod1/a\n1:cpu:/kubepods/pod1/a\n";
	static const char wanted[] = "0::/kubepods/pod1/\n1:cpu:/kubepods/pod1/\n";
	char pod[sizeof(wanted)];

	assert_true(pod_cgroup_find(text, pod, sizeof(wanted)));
	assert_string_equal(pod, wanted);
	for (size_t size = 1; size < sizeof(wanted); size++)
		assert_false(pod_cgroup_find(text, pod, size));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(containers_of_a_pod_are_in_it_and_others_are_not),
		cmocka_unit_test(no_process_outside_is_taken_in_by_names_of_its_own),
		cmocka_unit_test(a_process_in_no_pod_has_none),
		cmocka_unit_test(a_text_that_does_not_fit_names_no_pod),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
