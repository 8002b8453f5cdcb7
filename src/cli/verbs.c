/* The table of verbs and the table of options; help, parsing and the man page test read both. */
#include <stddef.h>

#include "cli/cli.h"

#define BIT(id) (1ull << (id))
#define SIZE_OPTIONS                                                                      \
	(BIT(OPT_VRAM) | BIT(OPT_GPU_MEMORY) | BIT(OPT_GPU) | BIT(OPT_MIG_PROFILE) |      \
	 BIT(OPT_VRAM_STRICT) | BIT(OPT_GPU_COMPUTE) | BIT(OPT_GPUS) | BIT(OPT_GPU_IDS) | \
	 BIT(OPT_WAIT_FOR) | BIT(OPT_SESSION_TIMEOUT) | BIT(OPT_NAME) | BIT(OPT_PRIORITY))

const struct cli_option cli_options[] = {
	{OPT_HELP, "help", NULL, "show this help"},
	{OPT_VERSION, "version", NULL, "show the version"},
	{OPT_JSON, "json", NULL, "print JSON, errors too"},
	{OPT_HOST, "host", "PATH", "socket of the daemon to talk to (also CARVE_HOST)"},
	{OPT_VRAM, "vram", "SIZE", "GPU memory: 4 or 4GiB, 2560MiB, 4GB, ..."},
	{OPT_GPU_MEMORY, "gpu-memory", "SIZE", "GPU memory as Kubernetes writes it: 4G, 4Gi"},
	{OPT_GPU, "gpu", "F", "a fraction of one GPU (0.25), or whole GPUs (2)"},
	{OPT_MIG_PROFILE, "mig-profile", "P", "a MIG profile: 2g.10gb"},
	{OPT_MIG_PROFILE, "mig", "P", NULL},
	{OPT_VRAM_STRICT, "vram-strict", NULL, "the size or nothing: no 93% rule"},
	{OPT_GPU_COMPUTE, "gpu-compute", "C", "share of the GPU's time: 25% or 0.25"},
	{OPT_GPUS, "gpus", "N", "that much on each of N GPUs"},
	{OPT_GPU_IDS, "gpu-ids", "LIST", "only on these GPUs: 0-2 or 0,1"},
	{OPT_WAIT_FOR, "wait-for", "SECONDS", "wait up to so long for room"},
	{OPT_SESSION_TIMEOUT, "session-timeout", "SECONDS", "end the session after so long"},
	{OPT_NAME, "name", "NAME", "a name to use in place of the session's ID"},
	{OPT_PRIORITY, "priority", "N", "who waits with a higher one is served first (0)"},
	{OPT_ALL, "all", NULL, "ended sessions too"},
	{OPT_FORCE, "force", NULL, "end the processes that use it first"},
	{OPT_EPHEMERAL, "ephemeral", NULL, "a slice of its own, released at the end"},
	{OPT_SESSION, "session", "ID", "run in this session"},
	{OPT_ISOLATION, "isolation", "HOW",
	 "preload (default); as root also mount: binds more programs"},
	{OPT_VERBOSE, "verbose", NULL, "(-v) say what was granted, and what was refused"},
	{OPT_GROUP, "group", "GROUP", "this group's quota instead of a user's"},
	{OPT_LIMIT_VRAM, "vram", "SIZE", "GPU memory in all, or none"},
	{OPT_LIMIT_SESSIONS, "sessions", "N", "sessions at a time, or none"},
	{OPT_LIMIT_GPUS, "gpus", "N", "different GPUs at a time, or none"},
	{OPT_SIM_GPUS, "gpus", "SPEC", "MODEL[:COUNT][+mig],... (h100-80gb)"},
	{OPT_SIM_DRIVER, "driver", "VERSION", "the driver version to play: 535, 550 or 580"},
	{OPT_SIM_LIST, "list", NULL, "list the models"},
	{OPT_COUNT, NULL, NULL, NULL},
};

const struct cli_verb cli_verbs[] = {
	{"gpu list", "", "list the GPUs and what is left on each", "carve gpu list", 0, 0, 0,
	 CLI_SYNTAX_MIXED, cli_gpu_list},
	{"session request", "", "reserve a slice until it is released",
	 "carve session request --vram 4", SIZE_OPTIONS, 0, 0, CLI_SYNTAX_MIXED,
	 cli_session_request},
	{"session list", "", "list sessions", "carve session list --all", BIT(OPT_ALL), 0, 0,
	 CLI_SYNTAX_MIXED, cli_session_list},
	{"session show", "[ID]", "show a session (yours, where none is named)",
	 "carve session show s-7k2m9q", 0, 0, 1, CLI_SYNTAX_MIXED, cli_session_show},
	{"session resize", "ID SIZE", "change a session's size while it is in use",
	 "carve session resize s-7k2m9q 6GiB", 0, 2, 2, CLI_SYNTAX_MIXED, cli_session_resize},
	{"session release", "[ID]", "end a session (yours, where none is named)",
	 "carve session release", BIT(OPT_FORCE), 0, 1, CLI_SYNTAX_MIXED, cli_session_release},
	{"run", "[--] CMD [ARG]...", "run a command in a slice",
	 "carve run --vram 2 python3 train.py",
	 SIZE_OPTIONS | BIT(OPT_EPHEMERAL) | BIT(OPT_SESSION) | BIT(OPT_ISOLATION) |
		 BIT(OPT_VERBOSE),
	 1, -1, CLI_SYNTAX_COMMAND, cli_run},
	{"sim", "[--] [CMD [ARG]...]", "run a command on a simulated GPU host",
	 "carve sim --gpus h100-80gb:2 -- carve gpu list",
	 BIT(OPT_SIM_GPUS) | BIT(OPT_SIM_DRIVER) | BIT(OPT_SIM_LIST), 0, -1, CLI_SYNTAX_COMMAND,
	 cli_sim},
	{"sim list", "[--json]", "list the models", "carve sim list", 0, 0, -1, CLI_SYNTAX_RAW,
	 cli_sim_tool},
	{"sim stat", "[--json] [--watch]", "what the simulated GPUs hold and did",
	 "carve sim stat --json", 0, 0, -1, CLI_SYNTAX_RAW, cli_sim_tool},
	{"sim trace", "FILE", "write a timeline in Chrome's trace format",
	 "carve sim trace host.json", 0, 0, -1, CLI_SYNTAX_RAW, cli_sim_tool},
	{"sim fault",
	 "KIND [--gpu N] [--pid PID] [--call NAME] [--skip N] [--count N]\n"
	 "         [--delay SECONDS] [--for SECONDS] [--error N] [--clear]",
	 "make the simulated driver fail", "carve sim fault alloc --gpu 0 --count 1", 0, 0, -1,
	 CLI_SYNTAX_RAW, cli_sim_tool},
	{"explain", "[ID]", "say why a request waits, or what would become of one",
	 "carve explain --vram 40 --gpus 2",
	 BIT(OPT_VRAM) | BIT(OPT_GPU_MEMORY) | BIT(OPT_GPU) | BIT(OPT_MIG_PROFILE) |
		 BIT(OPT_VRAM_STRICT) | BIT(OPT_GPU_COMPUTE) | BIT(OPT_GPUS) | BIT(OPT_GPU_IDS) |
		 BIT(OPT_EPHEMERAL),
	 0, 1, CLI_SYNTAX_MIXED, cli_explain},
	{"quota list", "", "list quotas and what is used of them", "carve quota list", 0, 0, 0,
	 CLI_SYNTAX_MIXED, cli_quota_list},
	{"quota show", "[USER]", "show a quota (yours, where none is named)",
	 "carve quota show alice", BIT(OPT_GROUP), 0, 1, CLI_SYNTAX_MIXED, cli_quota_show},
	{"quota set", "[USER]", "limit what a user or a group may hold",
	 "carve quota set alice --vram 16 --sessions 4 --gpus 2",
	 BIT(OPT_GROUP) | BIT(OPT_LIMIT_VRAM) | BIT(OPT_LIMIT_SESSIONS) | BIT(OPT_LIMIT_GPUS), 0, 1,
	 CLI_SYNTAX_MIXED, cli_quota_set},
	{"quota remove", "[USER]", "remove all limits of a user or a group",
	 "carve quota remove --group students", BIT(OPT_GROUP), 0, 1, CLI_SYNTAX_MIXED,
	 cli_quota_remove},
	{"check", "", "say what enforces slices here, and what is missing", "carve check", 0, 0, 0,
	 CLI_SYNTAX_MIXED, cli_check},
	{"help", "[VERB]...", "show help", "carve help session request", 0, 0, 2, CLI_SYNTAX_MIXED,
	 cli_help},
	{NULL, NULL, NULL, NULL, 0, 0, 0, CLI_SYNTAX_MIXED, NULL},
};
