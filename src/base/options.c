#include "base/options.h"

#include <stddef.h>

#include "base/error.h"

int options_next(int argc, char **argv, const struct option *options, struct error *err)
{
	opterr = 0;
	optopt = 0;
	/* Programs read their options before they have threads. */
	// NOLINTNEXTLINE(concurrency-mt-unsafe)
	int option = getopt_long(argc, argv, ":", options, NULL);

	if (option != '?' && option != ':')
		return option;
	const char *text = argv[optind - 1];
	if (option == ':')
		error_set(err, EXIT_CODE_USAGE, "%.64s needs a value", text);
	else if (optopt && text[1] == '-')
		error_set(err, EXIT_CODE_USAGE, "%.64s: this option takes no value", text);
	else
		error_set(err, EXIT_CODE_USAGE, "unknown option %.64s", text);
	return '?';
}
