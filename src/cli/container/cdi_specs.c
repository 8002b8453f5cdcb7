/* carve cdi generate, list, remove: CDI specs by which container runtimes give a container the
 * slice of a session, `podman run --device carve.dev/slice=ID IMAGE`. A session's spec is
 * DIR/carve.dev-slice_ID.json; what it mounts and was made for it is in DIR/carve/ID. A spec of a
 * size, `carve.dev/slice=8gib`, has carve-hook make a slice when a container is made. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/trust.h"
#include "cli/cli.h"
#include "cli/container/hook.h"
#include "cli/container/size_label.h"
#include "cli/output.h"
#include "cli/session/slice_request.h"
#include "client/client.h"
#include "client/sessions.h"
#include "container/cdi.h"
#include "container/edits.h"
#include "container/json_file.h"
#include "container/layout.h"
#include "container/nodes.h"
#include "container/wanted.h"
#include "slice/driver_find.h"
#include "slice/places.h"
#include "slice/slice_env.h"

#define FILES "carve"
/* How often it is made where others remove it. */
#define FILES_TRIES 5
/* Leaves room for the names of what is below it. */
#define DIR_MAX (PATH_MAX - 128)

static const struct {
	enum cli_option_id id;
	const char *name;
} size_options[] = {
	{OPT_VRAM, "vram"},       {OPT_GPU_MEMORY, "gpu-memory"},
	{OPT_GPU, "gpu"},         {OPT_MIG_PROFILE, "mig-profile"},
	{OPT_RESERVE, "reserve"},
};

/* ---- the directory ----------------------------------------------------------------------- */

/* Whether the directory is the simulated host's: nothing of a GPU that is not there is written
 * where the container runtimes of the real host read. */
static const char *simulated_host(const struct cli *cli)
{
	const char *host = secure_getenv("SIMGPU_HOST");

	return !cli->value[OPT_CDI_DIR] && host && *host == '/' ? host : NULL;
}

/* The directory that container runtimes read and that is empty after a boot, as sessions are. */
static int directory_choose(const struct cli *cli, char dir[static DIR_MAX], struct error *err)
{
	const char *given = cli->value[OPT_CDI_DIR];
	const char *simulated = simulated_host(cli);
	char cwd[PATH_MAX] = "";

	if (simulated)
		return snprintf(dir, DIR_MAX, "%s/cdi", simulated) < DIR_MAX
			       ? 0
			       : error_set(err, EXIT_CODE_FAILED,
					   "SIMGPU_HOST: the path is too long");
	if (given && !*given)
		return error_set(err, EXIT_CODE_USAGE, "--cdi-dir: the path is empty");
	if (given && *given != '/' && !getcwd(cwd, sizeof(cwd)))
		return error_set(err, EXIT_CODE_FAILED, "the current directory is gone");
	if (snprintf(dir, DIR_MAX, "%s%s%s", cwd, *cwd ? "/" : "",
		     given ? given : CDI_DIR_DYNAMIC) >= DIR_MAX)
		return error_set(err, EXIT_CODE_USAGE, "--cdi-dir: the path is too long");
	return 0;
}

/* A directory of another user's, or one that all write to, could lead elsewhere. */
static int directory_check(const char *dir, struct error *err)
{
	struct stat st;

	if (stat(dir, &st) < 0 ||
	    ((st.st_uid == 0 || trust_uid_is_own(st.st_uid)) && !(st.st_mode & S_IWOTH)))
		return 0;
	error_set(err, EXIT_CODE_NOT_PERMITTED, "%.300s is %s", dir,
		  st.st_mode & S_IWOTH ? "a directory that everybody writes to"
				       : "another user's directory");
	error_hint(err, "name one of your own with --cdi-dir, or " CDI_DIR_DYNAMIC);
	return -EXIT_CODE_NOT_PERMITTED;
}

static int directory_make(const char *path, struct error *err)
{
	if (mkdir(path, 0755) == 0 || errno == EEXIST)
		return 0;
	int error = errno;
	error_set(err, error == EACCES ? EXIT_CODE_NOT_PERMITTED : EXIT_CODE_FAILED,
		  "cannot make %.300s: %s", path, strerrordesc_np(error));
	if (error == EACCES)
		error_hint(err, "container runtimes read " CDI_DIR_DYNAMIC
				", which is root's; or use carve podman run, which needs no spec");
	return -err->code;
}

static void files_path(char path[static PATH_MAX], const char *dir, const char *id)
{
	snprintf(path, PATH_MAX, "%s/" FILES "/%s", dir, id);
}

/* A `carve cdi remove` at the same time may take the directory of all sessions away, as it was
 * empty just then. */
static int files_make(const char *dir, const char *files, struct error *err)
{
	char above[PATH_MAX];
	int rc = directory_make(dir, err);

	snprintf(above, sizeof(above), "%s/" FILES, dir);
	for (int i = 0; rc == 0 && i < FILES_TRIES; i++)
		if ((rc = directory_make(above, err)) == 0 &&
		    (mkdir(files, 0755) == 0 || errno == EEXIST))
			return 0;
	return rc < 0 ? rc : directory_make(files, err);
}

static void spec_name(char name[static CDI_NAME_MAX + 32], const char *id)
{
	snprintf(name, CDI_NAME_MAX + 32, CDI_SLICE_FILE "%s", id);
}

static void named_file(char name[static CDI_NAME_MAX + 32], const char *device)
{
	snprintf(name, CDI_NAME_MAX + 32, CDI_NAMED_FILE "%s", device);
}

/* Calls for the device of each of carve's specs in the directory. 0, or negative with *err set. */
static int specs_each(const char *dir,
		      int (*each)(const char *dir, const char *id, bool named, void *context),
		      void *context, struct error *err)
{
	DIR *stream = opendir(dir);
	char id[CDI_NAME_MAX + 1];
	int rc = 0;

	if (!stream && errno == ENOENT)
		return 0;
	if (!stream)
		return error_set(err, EXIT_CODE_FAILED, "cannot read %.300s: %s", dir,
				 strerrordesc_np(errno));
	// NOLINTNEXTLINE(concurrency-mt-unsafe): glibc's is safe for a stream of one's own
	for (struct dirent *entry; rc == 0 && (entry = readdir(stream));)
		if (cdi_file_session(entry->d_name, id))
			rc = each(dir, id, false, context);
		else if (cdi_file_named(entry->d_name, id))
			rc = each(dir, id, true, context);
	closedir(stream);
	return rc;
}

/* ---- generate ---------------------------------------------------------------------------- */

struct generation {
	struct places places;
	struct driver_libs driver;
	struct client client;
	char hook[PATH_MAX];
	const struct cli *cli;
	char dir[DIR_MAX];
};

/* A spec of one device, whose edits are taken over. */
static int device_write(const struct generation *g, const char *file, const char *device,
			json_t *edits, struct error *err)
{
	json_t *devices = json_array();

	json_array_append_new(devices, cdi_device(device, edits));
	cleanup_json json_t *spec = cdi_spec(CDI_SLICE_KIND, devices, NULL);
	return json_file_write(g->dir, file, spec, 0644, err);
}

static int spec_write(const struct generation *g, const struct container_slice *slice,
		      struct error *err)
{
	const char *const hook[] = {"--register", slice->session,   "--stamp", slice->stamp,
				    "--host",     g->client.socket, NULL};
	json_t *edits = NULL;
	char name[CDI_NAME_MAX + 32];
	int rc = container_files_write(slice, err);

	if (rc < 0 || (rc = container_slice_edits(slice, &edits, err)) < 0)
		return rc;
	/* So that all users of a container of root's are in the slice. */
	container_edits_hook(edits, g->hook, hook, hook_environment(g->cli));
	spec_name(name, slice->session);
	return device_write(g, name, slice->session, edits, err);
}

/* The host's GPU that all slices of this device are on: its only one, or the one that is named.
 * NULL: that is not known before a container asks. The result is borrowed from the list. */
static const json_t *only_gpu(const json_t *gpus, const char *index)
{
	json_t *gpu;
	size_t i;

	if (!index)
		return json_array_size(gpus) == 1 ? json_array_get(gpus, 0) : NULL;
	json_array_foreach((json_t *)gpus, i, gpu)
	{
		if (json_integer_value(json_object_get(gpu, "index")) == strtol(index, NULL, 10))
			return gpu;
	}
	return NULL;
}

/* A GPU that is named has to be there: no slice could be on it, and the spec would have no nodes.
 */
static int gpu_check(const struct cli *cli, const json_t *gpus, struct error *err)
{
	const char *ids = cli->value[OPT_GPU_IDS];

	if (!ids || only_gpu(gpus, ids))
		return 0;
	error_set(err, EXIT_CODE_USAGE, "--gpu-ids: there is no GPU %.16s", ids);
	error_hint(err, "`carve gpu list` shows the GPUs");
	return -EXIT_CODE_USAGE;
}

/* With them in the spec the runtime itself lets the container open the nodes, also where no hook
 * can (version 2 of cgroups). Writes the stamp of slices for which the nodes are right; "": the
 * spec has no nodes. */
static void nodes_add(const struct generation *g, const json_t *gpus, json_t *edits,
		      char stamp[static ATTACH_STAMP_SIZE])
{
	const json_t *gpu = only_gpu(gpus, g->cli->value[OPT_GPU_IDS]);

	stamp[0] = '\0';
	if (g->cli->value[OPT_MIG_PROFILE] || !gpu || json_is_true(json_object_get(gpu, "mig")))
		return;
	container_nodes_common(edits);
	container_nodes_gpu_pci(edits, session_text(gpu, "pci_bus_id"));
	snprintf(stamp, ATTACH_STAMP_SIZE, ":%s", session_text(gpu, "uuid"));
}

/* One GPU, by its number. */
static int gpu_ids_check(const struct cli *cli, struct error *err)
{
	const char *ids = cli->value[OPT_GPU_IDS];

	if (!ids || (*ids && strlen(ids) < 4 && strspn(ids, "0123456789") == strlen(ids) &&
		     !cli->value[OPT_CDI_LABEL]))
		return 0;
	error_set(err, EXIT_CODE_USAGE, "--gpu-ids: '%.64s' is not one GPU for a device of a size",
		  ids);
	error_hint(err, "`carve cdi generate --vram 8GiB --gpu-ids 0`");
	return -EXIT_CODE_USAGE;
}

/* The device of a size: 8gib, gpu-0.25, 2g.10gb, or image, which is whatever the image says. */
struct named {
	char device[SIZE_LABEL_SIZE + 24];
	/* Labels that the hook reads as those of a container; `on` where a GPU was named. */
	char label[2 * SIZE_LABEL_SIZE], on[sizeof("carve.gpu-ids=") + 8];
};

static int named_make(const struct cli *cli, struct named *ret, struct error *err)
{
	const char *ids = cli->value[OPT_GPU_IDS];
	struct size_label size;
	int rc = gpu_ids_check(cli, err);

	*ret = (struct named){.device = "image"};
	if (rc < 0 || cli->value[OPT_CDI_LABEL])
		return rc;
	if ((rc = size_label_read(cli, &size, err)) < 0)
		return rc;
	snprintf(ret->label, sizeof(ret->label), "%s=%s", size.name, size.value);
	snprintf(ret->on, sizeof(ret->on), CONTAINER_LABEL_PREFIX "gpu-ids=%s", ids ? ids : "");
	snprintf(ret->device, sizeof(ret->device), "%s%s%s%s", cli->value[OPT_GPU] ? "gpu-" : "",
		 size.value, ids ? "-on-" : "", ids ? ids : "");
	for (char *c = ret->device; *c; c++)
		*c = (char)tolower((unsigned char)*c);
	if (cdi_name_valid(ret->device))
		return 0;
	return cli->value[OPT_MIG_PROFILE]
		       ? error_set(err, EXIT_CODE_USAGE, "--mig-profile: '%s' is no MIG profile",
				   size.value)
		       : error_set(err, EXIT_CODE_USAGE, "'%s' can be no device's name",
				   ret->device);
}

/* Options that go with no size. */
static int named_check(const struct cli *cli, struct error *err)
{
	if (cli->argument_count || cli->value[OPT_CDI_ALL]) {
		error_set(err, EXIT_CODE_USAGE,
			  "cdi generate: a session has its size: leave %s out",
			  cli->argument_count ? "its ID or the size" : "--all or the size");
		error_hint(err, "`carve cdi generate --vram 8GiB`, or `carve cdi generate ID`");
		return -EXIT_CODE_USAGE;
	}
	for (size_t i = 0; i < ARRAY_SIZE(size_options) && cli->value[OPT_CDI_LABEL]; i++)
		if (cli->value[size_options[i].id])
			return error_set(
				err, EXIT_CODE_USAGE,
				"--image and --%s are both given; the size is the image's: "
				"leave one of them out",
				size_options[i].name);
	return 0;
}

/* Refuses a size that this host cannot have, whoever leaves: each container would fail. */
static int possible_check(const struct generation *g, struct error *err)
{
	cleanup_request struct slice_request request = {0};
	cleanup_json json_t *explanation = NULL;
	int rc = g->cli->value[OPT_CDI_LABEL] ? 1 : slice_request_read(g->cli, &request, err);

	if (rc != 0)
		return rc < 0 ? rc : 0;
	/* As the hook asks for a container's slice. */
	json_object_set_new(request.body, "ephemeral", json_true());
	rc = client_call(&g->client, "POST", "/v1/explain", request.body, NULL, &explanation, err);
	if (rc < 0 || !json_is_false(json_object_get(explanation, "possible")))
		return rc;
	error_set(err, EXIT_CODE_NO_ROOM, "no container could start with this device: %.400s",
		  session_text(explanation, "message"));
	error_hint(err, "%s", session_text(explanation, "hint"));
	return -EXIT_CODE_NO_ROOM;
}

/* Says where the specs are, as no container runtime looks there by itself. */
static void simulated_tell(const struct generation *g)
{
	if (simulated_host(g->cli))
		fprintf(stderr,
			"carve: note: this is a simulated host, so the specs are its own, in %s; "
			"container runtimes read " CDI_DIR_DYNAMIC " (--cdi-dir)\n",
			g->dir);
}

static int named_generate(const struct generation *g, struct error *err)
{
	struct named named;
	char file[CDI_NAME_MAX + 32], stamp[ATTACH_STAMP_SIZE];
	int rc = named_make(g->cli, &named, err);
	const char *arguments[12] = {"--host", g->client.socket};
	size_t count = 2;
	cleanup_json json_t *gpus = NULL;

	if (rc < 0 ||
	    (rc = client_call(&g->client, "GET", "/v1/gpus", NULL, NULL, &gpus, err)) < 0 ||
	    (rc = gpu_check(g->cli, gpus, err)) < 0 || (rc = possible_check(g, err)) < 0 ||
	    (rc = directory_make(g->dir, err)) < 0)
		return rc;
	json_t *edits = container_edits_new();
	nodes_add(g, gpus, edits, stamp);
	if (g->cli->value[OPT_CDI_LABEL]) {
		arguments[count++] = "--required";
	} else {
		arguments[count++] = "--label";
		arguments[count++] = named.label;
	}
	if (g->cli->value[OPT_GPU_IDS]) {
		arguments[count++] = "--label";
		arguments[count++] = named.on;
	}
	if (*stamp) {
		arguments[count++] = "--stamp";
		arguments[count++] = stamp;
	}
	container_edits_hook(edits, g->hook, arguments, hook_environment(g->cli));
	named_file(file, named.device);
	rc = device_write(g, file, named.device, edits, err);
	if (rc == 0) {
		printf(CDI_SLICE_KIND "=%s in %s/%s.json\n", named.device, g->dir, file);
		simulated_tell(g);
	}
	return rc;
}

/* Whether a size is asked for, or the image's. */
static bool is_named(const struct cli *cli)
{
	bool named = cli->value[OPT_CDI_LABEL] != NULL;

	for (size_t i = 0; i < ARRAY_SIZE(size_options); i++)
		named = named || cli->value[size_options[i].id];
	return named;
}

/* Some, or all. */
static int all_check(const struct cli *cli, struct error *err)
{
	if (!cli->value[OPT_CDI_ALL] || !cli->argument_count)
		return 0;
	return error_set(err, EXIT_CODE_USAGE,
			 "--all and %.64s are both given: leave one of them out",
			 cli->arguments[0]);
}

static int session_generate(const struct generation *g, const json_t *session, struct error *err)
{
	char files[PATH_MAX];
	const struct container_slice slice = {
		.session = session_text(session, "id"),
		.stamp = session_text(session, "stamp"),
		.gpus = json_object_get(session, "gpus"),
		.front_cuda = g->places.front_cuda,
		.front_nvml = g->places.front_nvml,
		.cuda = g->driver.cuda,
		.nvml = g->driver.nvml,
		.attach = g->client.attach,
		.files = files,
		.simulated_host = secure_getenv("SIMGPU_HOST"),
		.cover_driver = true,
	};
	int rc;

	if (strcmp(session_text(session, "state"), "active") != 0 || !cdi_name_valid(slice.session))
		return session_inactive(session, err);
	files_path(files, g->dir, slice.session);
	if ((rc = files_make(g->dir, files, err)) < 0 || (rc = spec_write(g, &slice, err)) < 0)
		return rc;
	printf("%s: " CDI_SLICE_KIND "=%s in %s/" CDI_SLICE_FILE "%s.json\n", slice.session,
	       slice.session, g->dir, slice.session);
	return 0;
}

static int generate_all(const struct generation *g, struct error *err)
{
	cleanup_json json_t *sessions = NULL;
	int rc = sessions_get(&g->client, &sessions, err);
	json_t *session;
	size_t i;

	json_array_foreach(sessions, i, session)
	{
		/* The API shows no `pids` of other users' sessions. */
		if (rc == 0 && !strcmp(session_text(session, "state"), "active") &&
		    json_object_get(session, "pids"))
			rc = session_generate(g, session, err);
	}
	return rc;
}

int cli_cdi_generate(struct cli *cli, struct error *err)
{
	struct generation g = {.cli = cli};
	int rc;

	if (slice_env_session())
		return error_set(err, EXIT_CODE_FAILED,
				 "this is inside slice %.64s already; run it from outside",
				 slice_env_session());
	if ((rc = is_named(cli) ? named_check(cli, err) : all_check(cli, err)) < 0 ||
	    (rc = directory_choose(cli, g.dir, err)) < 0 ||
	    (rc = directory_check(g.dir, err)) < 0 || (rc = places_find(&g.places, err)) < 0 ||
	    (rc = places_check(&g.places, err)) < 0 || (rc = driver_find(&g.driver, err)) < 0 ||
	    (rc = hook_program(g.hook, err)) < 0 ||
	    (rc = client_open(&g.client, cli->value[OPT_HOST], err)) < 0)
		return rc;
	if (is_named(cli))
		return named_generate(&g, err);
	if (cli->value[OPT_GPU_IDS])
		return error_set(err, EXIT_CODE_USAGE, "--gpu-ids goes with a size: --vram 8GiB");
	if (cli->value[OPT_CDI_ALL])
		rc = generate_all(&g, err);
	for (int i = 0; rc == 0 && !cli->value[OPT_CDI_ALL] && i < MAX(cli->argument_count, 1);
	     i++) {
		cleanup_json json_t *session = NULL;

		rc = session_get(&g.client, cli->arguments[i], &session, err);
		if (rc == 0)
			rc = session_generate(&g, session, err);
	}
	if (rc == 0)
		simulated_tell(&g);
	return rc;
}

/* ---- list -------------------------------------------------------------------------------- */

struct listing {
	json_t *sessions; /* the daemon's, NULL: none answers */
	json_t *specs;
};

/* Whether a session's spec was written for what the session has now. */
static bool spec_is_current(const char *file, const json_t *session)
{
	cleanup_json json_t *spec = json_load_file(file, 0, NULL);
	const json_t *device = json_array_get(json_object_get(spec, "devices"), 0);
	const json_t *hooks = json_object_get(json_object_get(device, "containerEdits"), "hooks");
	json_t *word;
	size_t i;

	json_array_foreach(json_object_get(json_array_get(hooks, 0), "args"), i, word)
	{
		if (json_is_string(word) &&
		    !strcmp(json_string_value(word), session_text(session, "stamp")))
			return true;
	}
	return false;
}

/* "active", "changed", "ended", or "unknown" where there is no daemon to ask. */
static const char *state_find(const json_t *sessions, const char *id, const char *file)
{
	json_t *session;
	size_t i;

	if (!sessions)
		return "unknown";
	json_array_foreach((json_t *)sessions, i, session)
	{
		if (!strcmp(session_text(session, "id"), id))
			return strcmp(session_text(session, "state"), "active") != 0 ||
					       spec_is_current(file, session)
				       ? session_text(session, "state")
				       : "changed";
	}
	return "ended";
}

static int spec_list(const char *dir, const char *id, bool named, void *context)
{
	struct listing *listing = context;
	char file[PATH_MAX];

	snprintf(file, sizeof(file), "%s/%s%s.json", dir, named ? CDI_NAMED_FILE : CDI_SLICE_FILE,
		 id);
	json_t *spec = json_pack(
		"{s:o, s:s?, s:s, s:s}", "device", json_sprintf(CDI_SLICE_KIND "=%s", id),
		"session", named ? NULL : id, "state",
		named ? "on demand" : state_find(listing->sessions, id, file), "file", file);
	size_t at = 0;

	/* A directory has its files in no order that anybody would look for. */
	while (at < json_array_size(listing->specs) &&
	       strcmp(session_text(json_array_get(listing->specs, at), "device"),
		      session_text(spec, "device")) < 0)
		at++;
	json_array_insert_new(listing->specs, at, spec);
	return 0;
}

/* 0 with *dir and the list, or negative with *err set. */
static int listing_make(const struct cli *cli, char dir[static DIR_MAX], struct listing *ret,
			struct error *err)
{
	struct client client;
	struct error ignored = {0};
	int rc = directory_choose(cli, dir, err);

	*ret = (struct listing){.specs = json_array()};
	if (rc == 0 && client_open(&client, cli->value[OPT_HOST], &ignored) == 0)
		(void)sessions_get(&client, &ret->sessions, &ignored);
	return rc < 0 ? rc : specs_each(dir, spec_list, ret, err);
}

static void listing_clear(struct listing *listing)
{
	json_decref(listing->sessions);
	json_decref(listing->specs);
}

int cli_cdi_list(struct cli *cli, struct error *err)
{
	static const char *const headings[] = {"DEVICE", "STATE", "FILE", NULL};
	cleanup_table struct table table = {0};
	struct listing listing;
	char dir[DIR_MAX];
	json_t *spec;
	size_t i;
	int rc = listing_make(cli, dir, &listing, err);

	if (rc == 0 && cli->value[OPT_JSON]) {
		rc = output_json(listing.specs, err);
	} else if (rc == 0) {
		table_begin(&table, headings);
		json_array_foreach(listing.specs, i, spec)
		{
			table_add(&table, "%s", session_text(spec, "device"));
			table_add(&table, "%s", session_text(spec, "state"));
			table_add(&table, "%s", session_text(spec, "file"));
		}
		table_print(&table);
	}
	listing_clear(&listing);
	return rc;
}

/* ---- remove ------------------------------------------------------------------------------ */

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
	return remove(path);
}

/* The spec first: nobody mounts what is gone. */
static int spec_remove(const char *dir, const char *id, bool named, struct error *err)
{
	char name[CDI_NAME_MAX + 32], files[PATH_MAX];
	int rc;

	if (named)
		named_file(name, id);
	else
		spec_name(name, id);
	if ((rc = json_file_remove(dir, name, err)) < 0)
		return rc;
	files_path(files, dir, id);
	if (!named)
		(void)nftw(files, remove_one, 4, FTW_DEPTH | FTW_PHYS);
	/* Nothing but carve's is in there; it stays as long as another session's files do. */
	snprintf(files, sizeof(files), "%s/" FILES, dir);
	(void)rmdir(files);
	printf("%s: removed\n", id);
	return 0;
}

static const char *device_name(const json_t *spec)
{
	return strchr(session_text(spec, "device"), '=') + 1;
}

static int spec_remove_listed(const char *dir, const json_t *spec, struct error *err)
{
	return spec_remove(dir, device_name(spec), !*session_text(spec, "session"), err);
}

static int remove_listed(const struct cli *cli, const char *dir, const struct listing *listing,
			 struct error *err)
{
	json_t *spec;
	size_t i;
	int rc = 0;

	json_array_foreach(listing->specs, i, spec)
	{
		if (rc == 0 &&
		    (cli->value[OPT_CDI_ALL] || !strcmp(session_text(spec, "state"), "ended")))
			rc = spec_remove_listed(dir, spec, err);
	}
	return rc;
}

static const json_t *listed_find(const struct listing *listing, const char *id)
{
	json_t *spec;
	size_t i;

	json_array_foreach(listing->specs, i, spec)
	{
		if (!strcmp(device_name(spec), id))
			return spec;
	}
	return NULL;
}

int cli_cdi_remove(struct cli *cli, struct error *err)
{
	struct listing listing;
	char dir[DIR_MAX];
	int rc = all_check(cli, err);

	if (rc < 0)
		return rc;
	rc = listing_make(cli, dir, &listing, err);
	if (rc == 0)
		rc = directory_check(dir, err);
	for (int i = 0; rc == 0 && i < cli->argument_count; i++) {
		const char *id = cli->arguments[i];

		const json_t *spec = listed_find(&listing, id);

		if (spec) {
			rc = spec_remove_listed(dir, spec, err);
			continue;
		}
		rc = error_set(err, EXIT_CODE_FAILED, "%.300s has no spec of a device '%.64s'", dir,
			       id);
		error_hint(err, "`carve cdi list` shows those that are there");
	}
	if (rc == 0 && !cli->argument_count)
		rc = remove_listed(cli, dir, &listing, err);
	listing_clear(&listing);
	return rc;
}
