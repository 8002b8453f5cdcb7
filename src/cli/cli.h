/* carve, the command: one table of options, one table of verbs, one file a verb. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct error;

/* Every option that any verb takes. Two options of the same spelling and different meaning
 * (`--gpus 2`, `--gpus h100-80gb`) are two of these. */
enum cli_option_id {
	OPT_HELP,
	OPT_VERSION,
	OPT_JSON,
	OPT_HOST,
	OPT_CHOSEN, /* from here on verbs choose; those before are every verb's, or carve's own */
	OPT_VRAM = OPT_CHOSEN,
	OPT_GPU_MEMORY,
	OPT_GPU,
	OPT_MIG_PROFILE,
	OPT_VRAM_STRICT,
	OPT_GPU_COMPUTE,
	OPT_GPUS,
	OPT_GPU_IDS,
	OPT_WAIT_FOR,
	OPT_SESSION_TIMEOUT,
	OPT_NAME,
	OPT_PRIORITY,
	OPT_ALL,
	OPT_RELEASE_ALL,
	OPT_FORCE,
	OPT_EPHEMERAL,
	OPT_SESSION,
	OPT_ISOLATION,
	OPT_VERBOSE,
	OPT_CHECK_VERBOSE,
	OPT_ONCE,
	OPT_INTERVAL,
	OPT_GROUP,
	OPT_EACH,
	OPT_EVERYONE,
	OPT_LIMIT_VRAM,
	OPT_LIMIT_SESSIONS,
	OPT_LIMIT_GPUS,
	OPT_LIMIT_HOURS,
	OPT_MODE,
	OPT_LEASE,
	OPT_GRANULARITY,
	OPT_SECONDS,
	OPT_SVG,
	OPT_FRACTIONS,
	OPT_MEMORY_ONLY,
	OPT_IDLE,
	OPT_SIMULATE_SECONDS,
	OPT_SIMULATE_MODE,
	OPT_MIG_GPUS,
	OPT_DYNAMIC_MIG,
	OPT_ENABLE_MODE,
	OPT_REASON,
	OPT_DRAIN_WAIT,
	OPT_OLDER_THAN,
	OPT_BACKEND,
	OPT_MIG_SHARE,
	OPT_MIG_WAIT,
	OPT_AGENT_GPUS,
	OPT_AGENT_DYNAMIC,
	OPT_AGENT_FAIRNESS,
	OPT_AGENT_DETACHED,
	OPT_AGENT_STATUS,
	OPT_AGENT_STOP,
	OPT_AGENT_NOW,
	OPT_AGENT_DRAIN,
	OPT_AGENT_RESUME,
	OPT_QUEUE,
	OPT_JOB_QUEUE,
	OPT_JOB_NAME,
	OPT_JOB_PRIORITY,
	OPT_JOB_TIME,
	OPT_JOB_BEGIN,
	OPT_JOB_RETRIES,
	OPT_JOB_RETRY_ON,
	OPT_JOB_AFTER,
	OPT_JOB_ARRAY,
	OPT_JOB_PARAM,
	OPT_JOB_INPUT,
	OPT_JOB_OUTPUT,
	OPT_JOB_ERROR,
	OPT_JOB_EXPORT,
	OPT_JOB_CHDIR,
	OPT_JOB_WAIT,
	OPT_JOB_REQUEUE,
	OPT_JOB_HOLD,
	OPT_JOB_GRACE,
	OPT_JOB_FOLLOW,
	OPT_JOB_ATTEMPT,
	OPT_JOB_FAILED,
	OPT_JOB_LAST,
	OPT_JOB_SINCE,
	OPT_JOB_USER,
	OPT_RELEASE_USER,
	OPT_LIMITS_USER,
	OPT_JOB_DOCKER,
	OPT_JOB_DOCKER_ARG,
	OPT_AGENT_ALLOW,
	OPT_AGENT_DENY,
	OPT_AGENT_ON,
	OPT_AGENT_TEMPLATE,
	OPT_AGENT_NAMESPACE,
	OPT_AGENT_PODS,
	OPT_AGENT_API,
	OPT_AGENT_TOKEN,
	OPT_AGENT_CA,
	OPT_JOB_FROM,
	OPT_JOB_EXEC,
	OPT_JOB_WEBHOOK,
	OPT_JOB_EXEC_TIMEOUT,
	OPT_JOB_CURSOR_FILE,
	OPT_JOB_SNAPSHOT,
	OPT_EVENT_KIND,
	OPT_NOTICE_CLEAR,
	OPT_NOTICE_SHOW,
	OPT_SIM_GPUS,
	OPT_SIM_DRIVER,
	OPT_SIM_LIST,
	OPT_SIM_SHARED,
	OPT_SIM_JOIN,
	OPT_CDI_DIR,
	OPT_CDI_ALL,
	OPT_HOOKS_DIR,
	OPT_DOCKER_DIR,
	OPT_CDI_LABEL,
	OPT_RESERVE,
	OPT_IMAGE_FROM,
	OPT_IMAGE_TAG,
	OPT_IMAGE_RUNTIME,
	OPT_REPORT_SINCE,
	OPT_REPORT_UNTIL,
	OPT_REPORT_BY,
	OPT_CSV,
	OPT_RECORD_COMMAND,
	OPT_SIGN_OUT,
	OPT_COUNT,
};

struct cli_option {
	enum cli_option_id id;
	const char *name;     /* an alias is a second entry of the same id, without help */
	const char *argument; /* NULL: a flag */
	const char *help;
	/* The values that shells complete: words, or a kind of them (completion/complete.c). */
	const char *values;
};

enum cli_syntax {
	CLI_SYNTAX_MIXED,   /* options and arguments in any order */
	CLI_SYNTAX_COMMAND, /* the first argument ends the options: what follows is somebody else's
			     */
	CLI_SYNTAX_RAW,     /* everything is passed on as it stands */
};

/* The command line, taken apart. Points into argv. */
#define CLI_GIVEN_MAX 256

struct cli {
	const struct cli_verb *verb;
	const char *group;            /* where verb is NULL: the group that was named, if any */
	const char *value[OPT_COUNT]; /* NULL: not given; a flag that was given is "" */
	char **arguments;             /* NULL-terminated */
	int argument_count;
	char **global; /* a container runtime's options before its verb */
	int global_count;
	bool dashes; /* "--" stood before the arguments */
	/* All options that were given, in order: for those that may be given again. */
	struct {
		enum cli_option_id id;
		const char *value;
	} given[CLI_GIVEN_MAX];
	int given_count;
	char **words; /* owned: where a short word was replaced, what the others point into */
};

/* A set of options that verbs choose: CLI_OPTION(OPT_...), joined by |. */
typedef unsigned __int128 cli_options_mask;
#define CLI_OPTION(id) ((cli_options_mask)1 << ((id)-OPT_CHOSEN))
_Static_assert(OPT_COUNT - OPT_CHOSEN <= 128, "options of a mask");

/* The sections of `carve help`, in its order. */
enum cli_section {
	SECTION_EVERYDAY,
	SECTION_QUEUES,
	SECTION_CONTAINERS,
	SECTION_CLUSTER,
	SECTION_ADMINISTRATOR,
	SECTION_SIMULATED,
	SECTION_COUNT,
};

struct cli_verb {
	enum cli_section section;
	const char *name;  /* "session request"; the first word is its group */
	const char *usage; /* arguments, for the synopsis */
	const char *summary;
	const char *example;
	cli_options_mask options;         /* --help, --json, --host come on top */
	int arguments_min, arguments_max; /* max < 0: any number */
	enum cli_syntax syntax;
	/* Returns the exit status, or a negative number with *err set. */
	int (*run)(struct cli *cli, struct error *err);
};

/* Ends at an entry whose name is NULL. */
extern const struct cli_option cli_options[];
extern const struct cli_verb cli_verbs[];

/* A word that people try, and the words that it stands for; `second` may be NULL. */
struct cli_short {
	const char *word, *first, *second;
};
/* Ends with a word of NULL. */
extern const struct cli_short cli_shorts[];

/* Whether `verb` takes the option. */
bool cli_verb_takes(const struct cli_verb *verb, enum cli_option_id id);
/* Whether `verb` is `group` itself or one of its verbs. */
bool cli_verb_in_group(const struct cli_verb *verb, const char *group);

/* Takes argv apart: finds the verb, its options and arguments. Where only help is asked for, the
 * verb may stay NULL. 0, or negative with *err set; cli->value[OPT_JSON] is right even then. */
int cli_parse(struct cli *cli, int argc, char **argv, struct error *err);

/* The whole program; returns its exit status. */
int cli_main(int argc, char **argv);
/* The daemon names the field that is wrong, as all who ask it have fields; here an option was
 * typed: makes the message begin with that. */
void cli_error_name_option(const struct cli *cli, struct error *err);

/* The verbs. */
int cli_gpu_list(struct cli *cli, struct error *err);
int cli_podman(struct cli *cli, struct error *err);
int cli_docker(struct cli *cli, struct error *err);
int cli_apptainer(struct cli *cli, struct error *err);
int cli_image_build(struct cli *cli, struct error *err);
int cli_hook_install(struct cli *cli, struct error *err);
int cli_hook_remove(struct cli *cli, struct error *err);
int cli_cdi_generate(struct cli *cli, struct error *err);
int cli_cdi_list(struct cli *cli, struct error *err);
int cli_cdi_remove(struct cli *cli, struct error *err);
int cli_session_request(struct cli *cli, struct error *err);
int cli_session_list(struct cli *cli, struct error *err);
int cli_session_show(struct cli *cli, struct error *err);
int cli_session_resize(struct cli *cli, struct error *err);
int cli_session_release(struct cli *cli, struct error *err);
int cli_run(struct cli *cli, struct error *err);
int cli_sim(struct cli *cli, struct error *err);
int cli_sim_tool(struct cli *cli, struct error *err);
int cli_top(struct cli *cli, struct error *err);
int cli_explain(struct cli *cli, struct error *err);
int cli_report(struct cli *cli, struct error *err);
int cli_limits(struct cli *cli, struct error *err);
int cli_quota_list(struct cli *cli, struct error *err);
int cli_quota_show(struct cli *cli, struct error *err);
int cli_quota_set(struct cli *cli, struct error *err);
int cli_quota_remove(struct cli *cli, struct error *err);
int cli_timeslicing(struct cli *cli, struct error *err);
int cli_timeslicing_simulate(struct cli *cli, struct error *err);
int cli_timeslicing_trace(struct cli *cli, struct error *err);
int cli_outside(struct cli *cli, struct error *err);
int cli_mig_list(struct cli *cli, struct error *err);
int cli_mig_gc(struct cli *cli, struct error *err);
int cli_node_drain(struct cli *cli, struct error *err);
int cli_node_resume(struct cli *cli, struct error *err);
int cli_node_set_role(struct cli *cli, struct error *err);
int cli_node_remove_role(struct cli *cli, struct error *err);
int cli_mig_simulate(struct cli *cli, struct error *err);
int cli_agent(struct cli *cli, struct error *err);
int cli_enqueue(struct cli *cli, struct error *err);
int cli_queue_list(struct cli *cli, struct error *err);
int cli_job_list(struct cli *cli, struct error *err);
int cli_job_show(struct cli *cli, struct error *err);
int cli_job_explain(struct cli *cli, struct error *err);
int cli_job_logs(struct cli *cli, struct error *err);
int cli_job_wait(struct cli *cli, struct error *err);
int cli_job_cancel(struct cli *cli, struct error *err);
int cli_job_hold(struct cli *cli, struct error *err);
int cli_job_release(struct cli *cli, struct error *err);
int cli_job_move(struct cli *cli, struct error *err);
int cli_job_edit(struct cli *cli, struct error *err);
int cli_job_again(struct cli *cli, struct error *err);
int cli_job_events(struct cli *cli, struct error *err);
int cli_events(struct cli *cli, struct error *err);
int cli_audit(struct cli *cli, struct error *err);
int cli_notice(struct cli *cli, struct error *err);
int cli_web(struct cli *cli, struct error *err);
int cli_check(struct cli *cli, struct error *err);
int cli_kubernetes(struct cli *cli, struct error *err);
int cli_completion(struct cli *cli, struct error *err);
int cli_help(struct cli *cli, struct error *err);
