/* Prints a family whose labels have all that is to be escaped: promtool reads it in a test. */
#include <stdio.h>

#include "daemon/metrics/text.h"

int main(void)
{
	static const struct metrics_family family = {"carve_test_ratio", "A test.", METRICS_RATIO,
						     false};
	struct metrics_text labels = {0}, text = {0};

	metrics_label(&labels, 0, "name", "a\"b\\c\nd");
	metrics_label(&labels, 0, "user", "\xff\xc3\xc3\xa9");
	metrics_family_begin(&text, &family);
	metrics_sample(&text, &family, labels.data, labels.size, 250000);
	fputs(text.data, stdout);
	metrics_text_free(&labels);
	metrics_text_free(&text);
	return 0;
}
