/* The picture of lanes, as text; tests/system/timeslicing/test_timeslicing_simulate.py reads one as
 * XML. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/macros.h"
#include "cli/timeslicing/lanes_svg.h"

static char *draw(const struct lane_picture *picture)
{
	char *text = NULL;
	size_t size = 0;
	FILE *file = open_memstream(&text, &size);

	assert_non_null(file);
	assert_int_equal(lanes_svg_write(file, picture), 0);
	fclose(file);
	return text;
}

static unsigned count(const char *text, const char *word)
{
	unsigned n = 0;

	for (const char *p = text; (p = strstr(p, word)); p++)
		n++;
	return n;
}

static void names_are_escaped(void **state)
{
	struct lane lane = {"<a> & \"b\"\n", "25%"};
	struct lane_span span = {0, 0, 500, LANE_LEASE, "</title><script>"};
	struct lane_picture picture = {.title = "t",
				       .subtitle = "s",
				       .lanes = &lane,
				       .count = 1,
				       .to_ns = 1000,
				       .spans = &span,
				       .span_count = 1};
	char *text = draw(&picture);

	assert_non_null(strstr(text, ">&lt;a&gt; &amp; &quot;b&quot;?</text>"));
	assert_null(strstr(text, "<script>"));
	free(text);
}

static void plans_and_kinds_are_shown(void **state)
{
	struct lane lanes[] = {{"a", NULL}, {"b", NULL}};
	struct lane_span spans[] = {{0, 0, 400, LANE_LEASE, NULL},
				    {0, 400, 500, LANE_OVERRUN, NULL},
				    {1, 0, 500, LANE_WAIT, NULL},
				    {1, 500, 700, LANE_LEASE, NULL},
				    {1, 700, 1000, LANE_IDLE, NULL}};
	struct lane_picture picture = {.title = "t",
				       .subtitle = "s",
				       .lanes = lanes,
				       .count = 2,
				       .to_ns = 1000,
				       .plan_ns = 500,
				       .spans = spans,
				       .span_count = ARRAY_SIZE(spans)};
	char *text = draw(&picture);

	assert_int_equal(count(text, ">plan "), 2);
	assert_int_equal(count(text, "stroke-dasharray"), 3);
	/* One in the picture, one in the legend. */
	assert_int_equal(count(text, "fill=\"url(#idle)\""), 2);
	assert_int_equal(count(text, "stroke-opacity"), 2);
	free(text);
}

/* A day of leases doesn't make a file of a gigabyte. */
static void spans_too_short_to_see_are_joined(void **state)
{
	enum { SPANS = 100000 };
	struct lane lane = {"a", NULL};
	struct lane_span *spans = calloc(SPANS, sizeof(*spans));
	struct lane_picture picture = {.title = "t",
				       .subtitle = "s",
				       .lanes = &lane,
				       .count = 1,
				       .to_ns = SPANS * 1000ull,
				       .spans = spans,
				       .span_count = SPANS};

	for (uint64_t i = 0; i < SPANS; i++)
		spans[i] = (struct lane_span){0, i * 1000, i * 1000 + 900, LANE_LEASE, NULL};
	char *text = draw(&picture);
	assert_true(strlen(text) < 20000);
	free(text);
	free(spans);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_are_escaped),
		cmocka_unit_test(plans_and_kinds_are_shown),
		cmocka_unit_test(spans_too_short_to_see_are_joined),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
