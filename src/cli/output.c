#include "cli/output.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"

static void error_print_json(const struct error *err)
{
	json_t *object = json_pack("{s:{s:i,s:s,s:s}}", "error", "code", err->code, "message",
				   err->message, "hint", err->hint);

	/* Text that is not UTF-8 (a file name) can not stand in JSON; the code still can. */
	if (!object)
		object = json_pack("{s:{s:i,s:s,s:s}}", "error", "code", err->code, "message",
				   "the message holds text that is not UTF-8", "hint", "");
	json_dumpf(object, stderr, JSON_COMPACT);
	fputc('\n', stderr);
	json_decref(object);
}

void output_error(const struct error *err, bool json)
{
	if (json) {
		error_print_json(err);
		return;
	}
	fprintf(stderr, "carve: %s%s%s\n", err->message, err->hint[0] ? "; " : "", err->hint);
}

int output_json(const json_t *value, struct error *err)
{
	if (json_dumpf(value, stdout, JSON_INDENT(2) | JSON_ENCODE_ANY) < 0 ||
	    putchar('\n') == EOF || fflush(stdout) == EOF)
		return error_set(err, EXIT_CODE_FAILED, "cannot write to standard output: %s",
				 strerrordesc_np(errno));
	return 0;
}

static void cell_append(struct table *t, char *text)
{
	char **cells = reallocarray(t->cells, t->count + 1, sizeof(*cells));

	if (!cells) {
		free(text);
		return;
	}
	t->cells = cells;
	t->cells[t->count++] = text;
}

void table_begin(struct table *t, const char *const *headings)
{
	*t = (struct table){0};
	for (; headings[t->columns]; t->columns++)
		table_add(t, "%s", headings[t->columns]);
}

void table_add(struct table *t, const char *format, ...)
{
	char *text = NULL;
	va_list args;

	va_start(args, format);
	if (vasprintf(&text, format, args) < 0)
		text = NULL;
	va_end(args);
	for (char *c = text; c && *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
	cell_append(t, text);
}

static size_t column_width(const struct table *t, size_t column)
{
	size_t width = 0;

	for (size_t i = column; i < t->count; i += t->columns)
		if (t->cells[i])
			width = MAX(width, strlen(t->cells[i]));
	return width;
}

void table_print(const struct table *t)
{
	for (size_t i = 0; i < t->count; i++) {
		size_t column = i % t->columns;
		const char *text = t->cells[i] ? t->cells[i] : "";

		if (column + 1 == t->columns)
			printf("%s\n", text);
		else
			printf("%-*s  ", (int)column_width(t, column), text);
	}
}

void table_free(struct table *t)
{
	for (size_t i = 0; i < t->count; i++)
		free(t->cells[i]);
	free_ptr(&t->cells);
	t->count = 0;
}
