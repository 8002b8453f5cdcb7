#include "cli/timeslicing/lanes_svg.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "base/macros.h"

/* All in pixels. */
#define WIDTH 1000.0
#define NOTE_WIDTH 90.0
#define TOP 64.0
#define LANE 34.0
#define BAR 22.0
#define FOOT 76.0
#define LETTER 7.2
#define TICKS_MAX 12
/* Spans nearer to each other than that are drawn as one. */
#define NEAR 0.25

static const char *const colours[] = {"#3465a4", "#c8553d", "#2e8b57", "#8a5aa8", "#c58a12",
				      "#1a8c96", "#b03a6f", "#5b7a1f", "#7a5230", "#4f5d95"};

struct frame {
	FILE *file;
	const struct lane_picture *l;
	double left, right, bottom;
};

static double x_of(const struct frame *f, uint64_t ns)
{
	const struct lane_picture *l = f->l;
	uint64_t at = MIN(MAX(ns, l->from_ns), l->to_ns) - l->from_ns;

	return f->left + (f->right - f->left) * (double)at / (double)(l->to_ns - l->from_ns);
}

static double y_of(uint32_t lane)
{
	return TOP + LANE * lane + (LANE - BAR) / 2;
}

/* XML text; control characters, which XML doesn't have, become '?'. */
static void escaped(FILE *file, const char *text)
{
	for (const char *p = text; *p; p++) {
		if (*p == '&')
			fputs("&amp;", file);
		else if (*p == '<')
			fputs("&lt;", file);
		else if (*p == '>')
			fputs("&gt;", file);
		else if (*p == '"')
			fputs("&quot;", file);
		else
			fputc((unsigned char)*p < 0x20 || *p == 0x7f ? '?' : *p, file);
	}
}

static void text(const struct frame *f, double x, double y, const char *style, const char *content)
{
	fprintf(f->file, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, style);
	escaped(f->file, content);
	fputs("</text>\n", f->file);
}

/* 1, 2 or 5 times a power of ten, so that at most TICKS_MAX of it fit. */
static uint64_t tick_ns(uint64_t length)
{
	static const uint64_t steps[] = {1, 2, 5};

	for (uint64_t unit = 1;; unit *= 10)
		for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
			if (length / (unit * steps[i]) <= TICKS_MAX)
				return unit * steps[i];
}

static void time_text(uint64_t ns, uint64_t tick, char *out, size_t size)
{
	static const struct {
		uint64_t ns;
		const char *name;
	} units[] = {{1000000000, "s"}, {1000000, "ms"}, {1000, "us"}, {1, "ns"}};
	size_t i = 0;

	/* With one decimal at most. */
	while (units[i].ns > 10 && tick % (units[i].ns / 10))
		i++;
	if (tick % units[i].ns)
		snprintf(out, size, "%" PRIu64 ".%" PRIu64 " %s", ns / units[i].ns,
			 ns % units[i].ns * 10 / units[i].ns, units[i].name);
	else
		snprintf(out, size, "%" PRIu64 " %s", ns / units[i].ns, units[i].name);
}

static void ticks_draw(const struct frame *f)
{
	const struct lane_picture *l = f->l;
	uint64_t tick = tick_ns(l->to_ns - l->from_ns);

	for (uint64_t ns = 0; ns <= l->to_ns - l->from_ns; ns += tick) {
		double x = x_of(f, l->from_ns + ns);
		char label[48];

		time_text(ns, tick, label, sizeof(label));
		fprintf(f->file, "<path d=\"M%.1f %.1fV%.1f\" stroke=\"#999\"/>\n", x, f->bottom,
			f->bottom + 5);
		text(f, x, f->bottom + 19, "text-anchor=\"middle\" class=\"s\"", label);
	}
}

static void plans_draw(const struct frame *f)
{
	const struct lane_picture *l = f->l;

	/* More boundaries than can be told apart say nothing. */
	if (!l->plan_ns || (l->to_ns - l->from_ns) / l->plan_ns > 100)
		return;
	uint64_t first = l->from_ns <= l->plan_from_ns
				 ? 0
				 : (l->from_ns - l->plan_from_ns + l->plan_ns - 1) / l->plan_ns;
	for (uint64_t n = first; l->plan_from_ns + n * l->plan_ns <= l->to_ns; n++) {
		double x = x_of(f, l->plan_from_ns + n * l->plan_ns);
		char label[32];

		fprintf(f->file,
			"<path d=\"M%.1f %.1fV%.1f\" stroke=\"#555\" stroke-dasharray=\"5 3\"/>\n",
			x, TOP - 10, f->bottom);
		snprintf(label, sizeof(label), "plan %" PRIu64, n + 1);
		if (l->plan_from_ns + n * l->plan_ns < l->to_ns)
			text(f, x + 4, TOP - 3, "class=\"s\"", label);
	}
}

static void lanes_draw(const struct frame *f)
{
	for (uint32_t i = 0; i < f->l->count; i++) {
		const struct lane *lane = &f->l->lanes[i];
		double middle = y_of(i) + BAR / 2 + 4.5;

		fprintf(f->file,
			"<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
			"fill=\"%s\"/>\n",
			f->left, TOP + LANE * i, f->right - f->left, LANE,
			i % 2 ? "#ffffff" : "#f4f5f7");
		text(f, f->left - 8, middle, "text-anchor=\"end\"", lane->name);
		if (lane->note)
			text(f, f->right + 8, middle, "", lane->note);
	}
}

static const char *fill_of(const struct lane_span *s)
{
	return s->kind == LANE_IDLE ? "url(#idle)" : colours[s->lane % ARRAY_SIZE(colours)];
}

static void span_draw(const struct frame *f, const struct lane_span *s, double x0, double x1)
{
	double y = y_of(s->lane);

	if (s->kind == LANE_WAIT) {
		fprintf(f->file,
			"<path d=\"M%.2f %.1fH%.2f\" stroke=\"%s\" stroke-width=\"1.5\" "
			"stroke-opacity=\".45\"/>\n",
			x0, y + BAR / 2, x1, fill_of(s));
		return;
	}
	fprintf(f->file, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.0f\" fill=\"%s\">",
		x0, y, MAX(x1 - x0, 0.4), BAR, fill_of(s));
	if (s->label) {
		fputs("<title>", f->file);
		escaped(f->file, s->label);
		fputs("</title>", f->file);
	}
	fputs("</rect>\n", f->file);
	if (s->kind == LANE_OVERRUN)
		fprintf(f->file,
			"<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.0f\" "
			"fill=\"#000\" fill-opacity=\".5\"/>\n",
			x0, y, MAX(x1 - x0, 0.4), BAR);
}

static bool joins(const struct frame *f, const struct lane_span *last, const struct lane_span *s,
		  double last_x0)
{
	double gap = x_of(f, s->start_ns) - x_of(f, last->end_ns);

	/* Only where one of them is too small to be seen by itself. */
	return s->lane == last->lane && s->kind == last->kind && gap < NEAR &&
	       (x_of(f, s->end_ns) - x_of(f, s->start_ns) < 2 ||
		x_of(f, last->end_ns) - last_x0 < 2);
}

static void lane_spans_draw(const struct frame *f, uint32_t lane)
{
	const struct lane_span *last = NULL;
	double x0 = 0;

	for (size_t i = 0; i < f->l->span_count; i++) {
		const struct lane_span *s = &f->l->spans[i];

		if (s->lane != lane || s->end_ns <= f->l->from_ns || s->start_ns >= f->l->to_ns)
			continue;
		if (last && !joins(f, last, s, x0))
			span_draw(f, last, x0, x_of(f, last->end_ns));
		if (!last || !joins(f, last, s, x0))
			x0 = x_of(f, s->start_ns);
		last = s;
	}
	if (last)
		span_draw(f, last, x0, x_of(f, last->end_ns));
}

static void legend_draw(const struct frame *f)
{
	static const struct {
		enum lane_kind kind;
		const char *text;
	} entries[] = {{LANE_LEASE, "lease (a colour each)"},
		       {LANE_OVERRUN, "overrun"},
		       {LANE_WAIT, "waits"},
		       {LANE_IDLE, "idle: nobody may use it, or wants it"}};
	bool there[ARRAY_SIZE(entries)] = {true};
	double x = f->left, y = f->bottom + 34;

	for (size_t i = 0; i < f->l->span_count; i++)
		there[f->l->spans[i].kind] = true;
	for (size_t i = 0; i < ARRAY_SIZE(entries); i++) {
		struct frame at = *f;
		struct lane_span sample = {.kind = entries[i].kind};
		struct lane_picture none = {.from_ns = 0, .to_ns = 1};

		if (!there[entries[i].kind])
			continue;
		at.l = &none;
		fprintf(f->file, "<g transform=\"translate(0 %.1f)\">\n", y - y_of(0) - 4);
		span_draw(&at, &sample, x, x + 26);
		fputs("</g>\n", f->file);
		text(f, x + 32, y + 11.5, "class=\"s\"", entries[i].text);
		x += 32 + LETTER * (double)strlen(entries[i].text) + 20;
	}
}

static double left_of(const struct lane_picture *l)
{
	size_t longest = 6;

	for (uint32_t i = 0; i < l->count; i++)
		longest = MAX(longest, strlen(l->lanes[i].name));
	return 24 + LETTER * (double)MIN(longest, 40);
}

static void lanes_all_draw(const struct frame *f)
{
	lanes_draw(f);
	for (uint32_t i = 0; i < f->l->count; i++)
		lane_spans_draw(f, i);
	plans_draw(f);
	ticks_draw(f);
	legend_draw(f);
}

int lanes_svg_write(FILE *file, const struct lane_picture *picture)
{
	struct frame f = {file, picture, left_of(picture), WIDTH - NOTE_WIDTH,
			  TOP + LANE * picture->count};

	fprintf(file,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
		"width=\"%.0f\" height=\"%.0f\" font-family=\"sans-serif\" font-size=\"13\" "
		"fill=\"#222\">\n<style>.s{font-size:11.5px;fill:#555}</style>\n"
		"<defs><pattern id=\"idle\" width=\"6\" height=\"6\" "
		"patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">"
		"<rect width=\"6\" height=\"6\" fill=\"#fff\"/>"
		"<path d=\"M0 0V6\" stroke=\"#aaa\" stroke-width=\"3\"/></pattern></defs>\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
		WIDTH, f.bottom + FOOT, WIDTH, f.bottom + FOOT);
	text(&f, 16, 24, "font-size=\"16\" font-weight=\"bold\"", picture->title);
	text(&f, 16, 42, "class=\"s\"", picture->subtitle);
	/* Without lanes there is no time to show either. */
	if (picture->count)
		lanes_all_draw(&f);
	fputs("</svg>\n", file);
	return 0;
}
