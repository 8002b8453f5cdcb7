#include "cli/mig/bars_svg.h"

#include "base/macros.h"

/* All in pixels. */
#define WIDTH 760
#define NAMES 150
#define NOTES 90
#define TOP 66
#define LINE 28
#define BAR 18

static void bar_draw(FILE *file, const struct bar *b, uint32_t line, double most)
{
	double y = TOP + LINE * (double)line;
	double length = most > 0 ? (WIDTH - NAMES - NOTES) * b->value / most : 0;

	fprintf(file, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\"%s>%s</text>\n", NAMES - 8,
		y + BAR - 4, b->marked ? " font-weight=\"bold\"" : "", b->name);
	fprintf(file, "<rect x=\"%d\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" fill=\"%s\"%s/>\n",
		NAMES, y, length, BAR, b->marked ? "#0b5fa5" : "#a9b4c0",
		b->pale ? " fill-opacity=\"0.45\"" : "");
	fprintf(file, "<text x=\"%.1f\" y=\"%.1f\">%s</text>\n", NAMES + length + 6, y + BAR - 4,
		b->note);
}

int bars_svg_write(FILE *file, const struct bar_picture *picture)
{
	int height = TOP + LINE * (int)picture->count + 10;
	double most = 0;

	for (uint32_t i = 0; i < picture->count; i++)
		most = MAX(most, picture->bars[i].value);
	fprintf(file,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
		"viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"13\">\n"
		"<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n",
		WIDTH, height, WIDTH, height, WIDTH, height);
	fprintf(file, "<text x=\"16\" y=\"26\" font-size=\"16\">%s</text>\n", picture->title);
	fprintf(file, "<text x=\"16\" y=\"46\" fill=\"#666\">%s</text>\n", picture->subtitle);
	for (uint32_t i = 0; i < picture->count; i++)
		bar_draw(file, &picture->bars[i], i, most);
	fprintf(file, "</svg>\n");
	return 0;
}
