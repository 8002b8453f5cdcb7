#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/suggest.h"
#include "cli/cli.h"

#define WORDS_MAX 12

/* Parses a command line written as one string of words. */
static int parse(const char *line, char buf[256], struct cli *cli, struct error *err)
{
	char *argv[WORDS_MAX + 1] = {"carve"}, *state;
	static char *kept[WORDS_MAX + 1]; /* cli points into it */
	int argc = 1;

	strncpy(buf, line, 255);
	for (char *word = strtok_r(buf, " ", &state); word && argc < WORDS_MAX;
	     word = strtok_r(NULL, " ", &state))
		argv[argc++] = word;
	memcpy(kept, argv, sizeof(kept));
	*cli = (struct cli){0};
	*err = (struct error){0};
	return cli_parse(cli, argc, kept, err);
}

static void finds_verbs_and_options(void **state)
{
	struct cli cli;
	struct error err;
	char buf[256] = "";

	assert_int_equal(parse("session request --vram 4 --vram-strict", buf, &cli, &err), 0);
	assert_string_equal(cli.verb->name, "session request");
	assert_string_equal(cli.value[OPT_VRAM], "4");
	assert_string_equal(cli.value[OPT_VRAM_STRICT], "");
	assert_null(cli.value[OPT_JSON]);
	assert_int_equal(parse("session --json list", buf, &cli, &err), 0);
	assert_string_equal(cli.verb->name, "session list");
	assert_non_null(cli.value[OPT_JSON]);
	assert_int_equal(parse("session show s-1 --json", buf, &cli, &err), 0);
	assert_int_equal(cli.argument_count, 1);
	assert_string_equal(cli.arguments[0], "s-1");
	assert_non_null(cli.value[OPT_JSON]);
}

static void one_spelling_may_mean_two_things(void **state)
{
	struct cli cli;
	struct error err;
	char buf[256] = "";

	assert_int_equal(parse("run --gpus 2 --vram 1 x", buf, &cli, &err), 0);
	assert_string_equal(cli.value[OPT_GPUS], "2");
	assert_null(cli.value[OPT_SIM_GPUS]);
	assert_int_equal(parse("sim --gpus h100 x", buf, &cli, &err), 0);
	assert_string_equal(cli.value[OPT_SIM_GPUS], "h100");
	assert_null(cli.value[OPT_GPUS]);
	assert_int_equal(parse("run --mig 1g.10gb x", buf, &cli, &err), 0);
	assert_string_equal(cli.value[OPT_MIG_PROFILE], "1g.10gb");
}

static void a_command_keeps_its_options(void **state)
{
	struct cli cli;
	struct error err;
	char buf[256] = "";

	assert_int_equal(parse("run --vram 2 prog --json --vram 3", buf, &cli, &err), 0);
	assert_string_equal(cli.value[OPT_VRAM], "2");
	assert_null(cli.value[OPT_JSON]);
	assert_int_equal(cli.argument_count, 4);
	assert_null(cli.arguments[4]);
	assert_int_equal(parse("run -- --json", buf, &cli, &err), 0);
	assert_string_equal(cli.arguments[0], "--json");
	/* A unit is a command where it is one, and where it stands behind no number. */
	assert_int_equal(parse("run --vram 4 -- GB x", buf, &cli, &err), 0);
	assert_string_equal(cli.arguments[0], "GB");
	assert_int_equal(parse("run --vram 4 --vram-strict GB", buf, &cli, &err), 0);
	assert_int_equal(parse("run --vram 4GiB GB", buf, &cli, &err), 0);
	assert_int_equal(parse("run --name 4 GB", buf, &cli, &err), 0);
	assert_int_equal(parse("sim stat --watch -x --json", buf, &cli, &err), 0);
	assert_string_equal(cli.verb->name, "sim stat");
	assert_int_equal(cli.argument_count, 3);
	assert_int_equal(parse("sim -- stat", buf, &cli, &err), 0);
	assert_string_equal(cli.verb->name, "sim");
}

static void names_what_is_wrong(void **state)
{
	static const struct {
		const char *line, *message, *hint;
	} bad[] = {
		{"", "no command", "--help"},
		{"gpus", "'gpus'", "carve gpu"},
		{"session relase", "'relase'", "carve session release"},
		{"session", "no command given", "carve session --help"},
		{"gpu list x", "'x'", "carve gpu list"},
		{"run", "the command", "carve run"},
		{"run --vram 4", "the command", "usage: carve run"},
		{"run --vram 4 GB true", "no command 'GB'", "did you mean --vram 4GB?"},
		{"run --vram=2.5 gib -- true", "no command 'gib'", "did you mean --vram 2.5gib?"},
		{"run --gpu-memory 4 Gi true", "'Gi'", "did you mean --gpu-memory 4Gi?"},
		{"run --vram 4 --wait-for 10 min true", "'min'", "did you mean --wait-for 10min?"},
		{"run --vram 4 --gpu-compute 25 % true", "'%'", "did you mean --gpu-compute 25%?"},
		{"enqueue --queue half --vram 4 GB true", "'GB'", "did you mean --vram 4GB?"},
		{"session request --vram 4 GB", "'GB'", "did you mean --vram 4GB?"},
		{"session request --vram 4 GB --wait-for 1m", "'GB'", "did you mean --vram 4GB?"},
		{"session resize s-1 4 GB", "'GB'", "did you mean 4GB?"},
		{"quota set alice --vram 16 GB", "'GB'", "did you mean --vram 16GB?"},
		{"timeslicing --lease 250 ms --mode fair", "'ms'", "did you mean --lease 250ms?"},
		{"run --vrma 3 x", "--vrma", "--vram"},
		{"gpu list -q", "-q", "--help"},
		{"gpu list -v", "-v", "--help"},
		{"run --vram", "--vram needs", "--help"},
		{"gpu list --json=x", "--json=x", "--help"},
		{"gpu list --zzz --yyy", "--zzz", "--help"},
		{"timeslicing simulat", "'simulat'", "carve timeslicing simulate"},
		{"timeslicing --json tracee", "'tracee'", "carve timeslicing trace"},
		{"timeslicing --fractions 1", "--fractions", "timeslicing --help"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct cli cli;
		struct error err;
		char buf[256] = "";

		if (parse(bad[i].line, buf, &cli, &err) >= 0)
			fail_msg("'%s' accepted", bad[i].line);
		assert_int_equal(err.code, EXIT_CODE_USAGE);
		if (!strstr(err.message, bad[i].message) || !strstr(err.hint, bad[i].hint))
			fail_msg("'%s': %s (%s)", bad[i].line, err.message, err.hint);
	}
}

/* timeslicing is a verb, and a group. */
static void a_verb_may_lead_a_group(void **state)
{
	struct cli cli;
	struct error err;
	char buf[256] = "";

	assert_int_equal(parse("timeslicing --mode fair --json", buf, &cli, &err), 0);
	assert_string_equal(cli.verb->name, "timeslicing");
	assert_string_equal(cli.value[OPT_MODE], "fair");
	assert_int_equal(parse("timeslicing simulate --fractions 1", buf, &cli, &err), 0);
	assert_string_equal(cli.verb->name, "timeslicing simulate");
	assert_int_equal(parse("timeslicing --json simulate --fractions 1", buf, &cli, &err), 0);
	assert_string_equal(cli.verb->name, "timeslicing simulate");
	assert_string_equal(cli.value[OPT_FRACTIONS], "1");
	assert_non_null(cli.value[OPT_JSON]);
	assert_int_equal(parse("timeslicing --mode fair trace f", buf, &cli, &err), 0);
	assert_string_equal(cli.verb->name, "timeslicing trace");
	assert_int_equal(cli.argument_count, 1);
}

static void json_is_known_even_after_an_error(void **state)
{
	struct cli cli;
	struct error err;
	char buf[256] = "";

	assert_true(parse("gpu list --bogus --json", buf, &cli, &err) < 0);
	assert_non_null(cli.value[OPT_JSON]);
	assert_non_null(strstr(err.message, "--bogus"));
}

static void suggests_only_what_is_near(void **state)
{
	struct suggestion s = {0};

	suggest_offer(&s, "relase", "request", 7);
	assert_null(s.word);
	suggest_offer(&s, "relase", "release", 7);
	assert_string_equal(s.word, "release");
	suggest_offer(&s, "relase", "resize", 6);
	assert_string_equal(s.word, "release");
	s = (struct suggestion){0};
	suggest_offer(&s, "lsit", "list", 4);
	assert_string_equal(s.word, "list");
	s = (struct suggestion){0};
	suggest_offer(&s, "x", "list", 4);
	assert_null(s.word);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(finds_verbs_and_options),
		cmocka_unit_test(one_spelling_may_mean_two_things),
		cmocka_unit_test(a_command_keeps_its_options),
		cmocka_unit_test(names_what_is_wrong),
		cmocka_unit_test(a_verb_may_lead_a_group),
		cmocka_unit_test(json_is_known_even_after_an_error),
		cmocka_unit_test(suggests_only_what_is_near),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
