/* Which container of containerd's a bundle is of, and which containers are a pod's first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/macros.h"
#include "integrations/oci/containerd.h"
#include "integrations/oci/state.h"

#define TASKS "/io.containerd.runtime.v2.task/"
#define LONG "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void test_the_place_is_in_the_bundles_path(void **state)
{
	static const char *const others[] = {
		"",
		"/run/containers/storage/overlay-containers/" LONG "/userdata",
		"/run/containerd" TASKS,
		"/run/containerd" TASKS "k8s.io",
		"/run/containerd" TASKS "k8s.io/",
		"/run/containerd" TASKS "/c1",
		"/run/containerd" TASKS "k8s.io/c1/rootfs",
		"/run/containerd" TASKS "k8s io/c1",
		"/run/" LONG LONG TASKS "k8s.io/c1",
		"/run/containerd" TASKS LONG LONG "/c1",
	};
	struct containerd_place place;

	(void)state;
	assert_true(containerd_place("/run/k3s/containerd" TASKS "k8s.io/c1", &place));
	assert_string_equal(place.socket, "/run/k3s/containerd/containerd.sock");
	assert_string_equal(place.namespace, "k8s.io");
	assert_string_equal(place.id, "c1");
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		assert_false(containerd_place(others[i], &place));
}

static const struct {
	const char *bundle, *key, *value;
	bool is;
} sandboxes[] = {
	{"/run/containerd" TASKS "k8s.io/p", "io.kubernetes.cri.container-type", "sandbox", true},
	{"/run/containerd" TASKS "k8s.io/p", "io.kubernetes.cri.container-type", "container",
	 false},
	{"/run/containers/storage/overlay-containers/p/userdata",
	 "io.kubernetes.cri-o.ContainerType", "sandbox", true},
	/* podman's: a user has named the annotation. */
	{"/var/lib/containers/storage/overlay-containers/p/userdata",
	 "io.kubernetes.cri-o.ContainerType", "sandbox", false},
	/* docker's and nerdctl's: likewise. */
	{"/run/containerd" TASKS "moby/p", "io.kubernetes.cri.container-type", "sandbox", false},
	{"/run/containerd" TASKS "default/p", "io.kubernetes.cri.container-type", "sandbox", false},
	{"/run/containerd" TASKS "k8s.io/p", "carve.vram", "sandbox", false},
};

static void test_only_cri_runtimes_say_that_a_container_is_a_pods_first(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(sandboxes); i++) {
		struct oci_container container = {
			.annotations = json_pack("{s:s}", sandboxes[i].key, sandboxes[i].value)};

		(void)snprintf(container.bundle, sizeof(container.bundle), "%s",
			       sandboxes[i].bundle);
		assert_int_equal(oci_is_sandbox(&container), sandboxes[i].is);
		oci_container_clear(&container);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_place_is_in_the_bundles_path),
		cmocka_unit_test(test_only_cri_runtimes_say_that_a_container_is_a_pods_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
