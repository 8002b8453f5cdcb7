#include "cli/split_unit.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/units.h"
#include "cli/cli.h"

#define NUMBER_MAX 32
#define UNIT_MAX 4

/* "4" and "GB" as "4GB". False: one of them is no such thing. */
static bool joined(const char *number, const char *unit, char buf[static NUMBER_MAX + UNIT_MAX + 1])
{
	size_t digits = strlen(number), letters = strlen(unit);

	if (!digits || digits > NUMBER_MAX || strspn(number, "0123456789.") != digits || !letters ||
	    letters > UNIT_MAX)
		return false;
	for (size_t i = 0; i < letters; i++)
		if (!isalpha((unsigned char)unit[i]) && strcmp(unit, "%") != 0)
			return false;
	snprintf(buf, NUMBER_MAX + UNIT_MAX + 1, "%s%s", number, unit);
	return true;
}

bool split_unit_size(const char *number, const char *unit, char buf[static SPLIT_UNIT_SIZE])
{
	char text[NUMBER_MAX + UNIT_MAX + 1];
	struct error ignored = {0};
	uint64_t bytes;

	if (!joined(number, unit, text) || units_parse_amount(text, "SIZE", &bytes, &ignored) < 0)
		return false;
	snprintf(buf, SPLIT_UNIT_SIZE, "%s", text);
	return true;
}

static const struct cli_option *option_find(enum cli_option_id id)
{
	const struct cli_option *option = cli_options;

	while (option->name && option->id != id)
		option++;
	return option;
}

/* Whether the option takes such a value: its argument's name says of which kind it is. */
static bool takes(const struct cli_option *option, const char *value)
{
	static const struct units_part any = {.least = 0, .most = SHARE_ONE, .right = "5%"};
	const char *kind = option->argument ? option->argument : "";
	struct error ignored = {0};
	uint64_t number;
	uint32_t part;

	if (!strcmp(kind, "SIZE"))
		return units_parse_amount(value, option->name, &number, &ignored) >= 0;
	if (!strcmp(kind, "TIME"))
		return units_parse_seconds(value, option->name, &number, &ignored) >= 0;
	if (!strcmp(kind, "C") || !strcmp(kind, "G"))
		return units_parse_part(value, option->name, &any, &part, &ignored) >= 0;
	return false;
}

bool split_unit_option(const struct cli *cli, const char *word, bool last,
		       char buf[static SPLIT_UNIT_SIZE])
{
	char text[NUMBER_MAX + UNIT_MAX + 1];

	for (int i = last && cli->given_count ? cli->given_count - 1 : 0; i < cli->given_count;
	     i++) {
		const struct cli_option *option = option_find(cli->given[i].id);

		if (!joined(cli->given[i].value, word, text) || !takes(option, text))
			continue;
		snprintf(buf, SPLIT_UNIT_SIZE, "--%.40s %s", option->name, text);
		return true;
	}
	return false;
}
