#include "integrations/kubernetes/claim/cdi.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/json_text.h"
#include "base/macros.h"
#include "container/cdi.h"
#include "container/edits.h"
#include "container/layout.h"

const char *cdi_id(const char *driver, const struct stored_claim *stored, size_t slice,
		   char buf[static CDI_ID_SIZE])
{
	snprintf(buf, CDI_ID_SIZE, CDI_KIND_PREFIX "%s/claim=%s-%s", driver, stored->claim.uid,
		 stored->claim.device[stored->slice[slice].first].request);
	return buf;
}

/* ---- the spec ---------------------------------------------------------------------------- */

/* So that all users of a container are in the slice. */
static void hook_add(json_t *edits, const struct cdi_host *host,
		     const struct container_slice *slice)
{
	const char *const arguments[] = {"--register", slice->session, "--stamp", slice->stamp,
					 "--host",     host->socket,   NULL};

	if (*host->hook)
		container_edits_hook(edits, host->hook, arguments, NULL);
}

static void slice_of(const struct cdi_host *host, const char *id, const json_t *session,
		     const char *files, struct container_slice *ret)
{
	*ret = (struct container_slice){
		.session = id,
		.stamp = json_text(session, "stamp"),
		.gpus = json_object_get(session, "gpus"),
		.front_cuda = host->front_cuda,
		.front_nvml = host->front_nvml,
		.cuda = host->cuda,
		.nvml = host->nvml,
		.attach = host->attach,
		.files = files,
		.simulated_host = host->simulated_host,
		.cover_driver = true,
	};
}

/* Plugins before this layout had a file of that name, which containers may have mounted. */
static int files_make(const char *path, struct error *err)
{
	struct stat st;

	if (lstat(path, &st) == 0 && S_ISREG(st.st_mode))
		unlink(path);
	if (mkdir(path, 0755) == 0 || errno == EEXIST)
		return 0;
	return error_set(err, EXIT_CODE_FAILED, "cannot make %.300s: %s", path,
			 strerrordesc_np(errno));
}

/* A container keeps the files that it was started with: a new version of them takes the name alone.
 */
static int slice_edits(const struct cdi_host *host, const char *id, const json_t *session,
		       json_t **ret, struct error *err)
{
	char files[PATH_MAX + 32];
	struct container_slice slice;

	snprintf(files, sizeof(files), "%s/%s", host->slices, id);
	slice_of(host, id, session, files, &slice);
	int rc = files_make(files, err);
	if (rc == 0)
		rc = container_files_write(&slice, err);
	if (rc == 0)
		rc = container_slice_edits(&slice, ret, err);
	if (rc == 0)
		hook_add(*ret, host, &slice);
	return rc;
}

int cdi_claim_spec(const char *driver, const struct stored_claim *stored,
		   const struct cdi_host *host, const json_t *sessions, json_t **ret,
		   struct error *err)
{
	json_t *devices = json_array();
	char kind[CDI_ID_SIZE], id[CDI_ID_SIZE];

	snprintf(kind, sizeof(kind), CDI_KIND_PREFIX "%s/claim", driver);
	for (size_t i = 0; i < stored->slices; i++) {
		json_t *edits = NULL;
		int rc = slice_edits(host, stored->slice[i].session, json_array_get(sessions, i),
				     &edits, err);

		if (rc < 0) {
			json_decref(devices);
			return rc;
		}
		cdi_id(driver, stored, i, id);
		json_array_append_new(devices, cdi_device(strchr(id, '=') + 1, edits));
	}
	*ret = cdi_spec(kind, devices, NULL);
	return *ret ? 0 : error_set(err, EXIT_CODE_FAILED, "out of memory");
}

void cdi_slice_remove(const struct cdi_host *host, const char *session)
{
	static const char *const names[] = {CONTAINER_FILE_ENVIRONMENT, CONTAINER_FILE_PRELOAD};
	char path[PATH_MAX + 64];

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "%s/%s/%s", host->slices, session, names[i]);
		unlink(path);
	}
	snprintf(path, sizeof(path), "%s/%s", host->slices, session);
	if (rmdir(path) < 0 && errno == ENOTDIR)
		unlink(path);
}
