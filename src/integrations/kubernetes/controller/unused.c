#include "integrations/kubernetes/controller/unused.h"

#include "base/error.h"
#include "client/client.h"
#include "integrations/kubernetes/api/informer.h"
#include "integrations/kubernetes/object/template.h"

struct look {
	json_t *used; /* {"namespace/name": true} */
	json_t *unused;
	bool whole; /* the list that is read came to its end */
	bool (*goes_on)(void *arg);
	void *arg;
};

static bool look_goes_on(void *arg)
{
	const struct look *look = arg;

	return look->goes_on(look->arg);
}

static void on_pod(void *arg, enum informer_event event, const json_t *pod)
{
	const json_t *labels = json_object_get(json_object_get(pod, "metadata"), "labels");
	const char *name = json_string_value(json_object_get(labels, TEMPLATE_LABEL));
	char key[TEMPLATE_KEY_SIZE];
	struct look *look = arg;

	look->whole = event == INFORMER_LIST_ENDS;
	if (event == INFORMER_PRESENT && template_key(pod, name, key))
		json_object_set_new(look->used, key, json_true());
}

static void on_template(void *arg, enum informer_event event, const json_t *template)
{
	const char *name =
		json_string_value(json_object_get(json_object_get(template, "metadata"), "name"));
	char key[TEMPLATE_KEY_SIZE];
	struct look *look = arg;

	look->whole = event == INFORMER_LIST_ENDS;
	if (event == INFORMER_PRESENT && template_key(template, name, key) &&
	    !json_object_get(look->used, key))
		json_array_append_new(look->unused, json_string(key));
}

static int list(struct api *api, const char *path, const char *selector, struct look *look,
		void (*each)(void *arg, enum informer_event event, const json_t *object),
		struct error *err)
{
	const struct informer informer = {.api = api,
					  .path = path,
					  .selector = selector,
					  .each = each,
					  .goes_on = look_goes_on,
					  .arg = look};
	int rc = informer_list(&informer, err);

	if (rc == 0 && !look->whole)
		rc = error_set(err, EXIT_CODE_FAILED, "%s was not read to its end", path);
	return rc;
}

int unused_find(struct api *api, bool (*goes_on)(void *arg), void *arg, json_t **ret,
		struct error *err)
{
	struct look look = {
		.used = json_object(), .unused = json_array(), .goes_on = goes_on, .arg = arg};
	int rc =
		list(api, "/api/v1/pods", "labelSelector=carve.dev%2Ftemplate", &look, on_pod, err);

	if (rc == 0)
		rc = list(api, "/apis/resource.k8s.io/v1/resourceclaimtemplates", TEMPLATE_SELECTOR,
			  &look, on_template, err);
	json_decref(look.used);
	if (rc < 0)
		json_decref(look.unused);
	else
		*ret = look.unused;
	return rc;
}
