#include "cli/output.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "base/text_escape.h"
#include "base/units.h"
#include "cli/columns.h"

/* The number of links that the kernel follows. */
#define LINKS_MOST 40
#define PLACE_SIZE (2 * (size_t)PATH_MAX)
/* Between columns, and before the further lines of a row. */
#define TABLE_GAP "  "
#define TABLE_INDENT "     "

void output_error(const struct error *err, bool json)
{
	char message[sizeof(err->message) * TEXT_ESCAPE_SIZE],
		hint[sizeof(err->hint) * TEXT_ESCAPE_SIZE];

	text_escape(err->message, !json, message);
	text_escape(err->hint, !json, hint);
	if (!json) {
		fprintf(stderr, "carve: %s%s%s\n", message, hint[0] ? "; " : "", hint);
		return;
	}
	json_t *object = json_pack("{s:{s:i,s:s,s:s}}", "error", "code", err->code, "message",
				   message, "hint", hint);
	json_dumpf(object, stderr, JSON_COMPACT);
	fputc('\n', stderr);
	json_decref(object);
}

static int json_print(const json_t *value, size_t flags, struct error *err)
{
	flags |= JSON_ENCODE_ANY | JSON_REAL_PRECISION(SHARE_DIGITS);
	if (json_dumpf(value, stdout, flags) < 0 || putchar('\n') == EOF || fflush(stdout) == EOF)
		return error_set(err, EXIT_CODE_FAILED, "cannot write to standard output: %s",
				 strerrordesc_np(errno));
	return 0;
}

int output_json(const json_t *value, struct error *err)
{
	return json_print(value, JSON_INDENT(2), err);
}

int output_json_line(const json_t *value, struct error *err)
{
	return json_print(value, JSON_COMPACT, err);
}

bool output_is_stdout(const char *path)
{
	return path && !strcmp(path, "-");
}

static int file_fill(FILE *file, int (*write)(FILE *file, const void *data), const void *data)
{
	errno = 0;
	int rc = write(file, data);

	if (rc == 0 && (fflush(file) == EOF || ferror(file)))
		rc = errno ? -errno : -EIO;
	return rc;
}

int output_file(const char *path, int (*write)(FILE *file, const void *data), const void *data,
		struct error *err)
{
	bool is_new = !output_is_stdout(path) && access(path, F_OK) < 0;
	FILE *file = output_is_stdout(path) ? stdout : fopen(path, "we");
	int rc = file ? file_fill(file, write, data) : -errno;

	if (file && file != stdout && fclose(file) != 0 && rc == 0)
		rc = -errno;
	/* Half of it is of no use, and would be taken for the whole. */
	if (file && rc < 0 && is_new)
		(void)unlink(path);
	if (rc == 0)
		return 0;
	return error_set(err, EXIT_CODE_FAILED, "cannot write %s: %s",
			 output_is_stdout(path) ? "to standard output" : path,
			 strerrordesc_np(-rc));
}

/* The path to which a link leads. False: it is none. */
static bool link_follow(const char *path, char to[static PLACE_SIZE])
{
	char target[PATH_MAX], copy[PLACE_SIZE];
	ssize_t length = readlink(path, target, sizeof(target) - 1);

	if (length < 0)
		return false;
	target[length] = '\0';
	snprintf(copy, sizeof(copy), "%s", path);
	length = target[0] == '/' ? snprintf(to, PLACE_SIZE, "%s", target)
				  : snprintf(to, PLACE_SIZE, "%s/%s", dirname(copy), target);
	return length < (ssize_t)PLACE_SIZE;
}

/* The place of a file that need not be there yet, in a folder that is. False: there is no such
 * folder. */
static bool place_of(const char *path, char place[static PLACE_SIZE])
{
	char at[PLACE_SIZE], next[PLACE_SIZE], name[PLACE_SIZE];

	if (realpath(path, place))
		return true;
	snprintf(at, sizeof(at), "%s", path);
	for (int i = 0; i < LINKS_MOST && link_follow(at, next); i++)
		memcpy(at, next, sizeof(at));
	memcpy(name, at, sizeof(name));
	if (!realpath(dirname(at), place))
		return false;
	snprintf(place + strlen(place), PATH_MAX, "/%s", basename(name));
	return true;
}

bool output_is_same(const char *path, const char *other)
{
	char place[PLACE_SIZE], its[PLACE_SIZE];
	struct stat here, there;

	if (strcmp(path, other) == 0)
		return true;
	if (output_is_stdout(path) || output_is_stdout(other))
		return false;
	if (stat(path, &here) == 0 && stat(other, &there) == 0)
		return S_ISREG(here.st_mode) && here.st_dev == there.st_dev &&
		       here.st_ino == there.st_ino;
	return place_of(path, place) && place_of(other, its) && strcmp(place, its) == 0;
}

int output_check_path(const char *path, struct error *err)
{
	char copy[PATH_MAX];
	struct stat st;
	int error = 0;

	if (output_is_stdout(path))
		return 0;
	if (!*path) {
		error_set(err, EXIT_CODE_USAGE, "the file name is empty");
		error_hint(err, "name a file, or - for standard output");
		return -EXIT_CODE_USAGE;
	}
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		error = EISDIR;
	else if (access(path, W_OK) < 0)
		error = errno;
	if (error == ENOENT) {
		snprintf(copy, sizeof(copy), "%s", path);
		error = access(dirname(copy), W_OK | X_OK) < 0 ? errno : 0;
	}
	return error ? error_set(err, EXIT_CODE_FAILED, "cannot write %s: %s", path,
				 strerrordesc_np(error))
		     : 0;
}

int output_check_json(bool json, const char *path, const char *option, const char *what,
		      struct error *err)
{
	if (!json || !output_is_stdout(path))
		return 0;
	error_set(err, EXIT_CODE_USAGE, "--json: %s to be written to standard output, too", what);
	error_hint(err, "give %s a file", option);
	return -EXIT_CODE_USAGE;
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

/* Characters in a line of the terminal; 0: standard output is none, and lines may be of any length.
 */
static size_t terminal_width(void)
{
	struct winsize size;

	return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

static const char *cell(const struct table *t, size_t row, size_t column)
{
	size_t i = row * t->columns + column;

	return i < t->count && t->cells[i] ? t->cells[i] : "";
}

/* The column after those that stand in one line with `first`; one at least. */
static size_t line_end(const struct table *t, const size_t *width, size_t first, size_t limit)
{
	size_t used = (first ? strlen(TABLE_INDENT) : 0) + width[first], end = first + 1;

	while (end < t->columns && (!limit || used + strlen(TABLE_GAP) + width[end] <= limit))
		used += strlen(TABLE_GAP) + width[end++];
	return end;
}

/* A row's second line, and those after it, where they say anything. */
static bool line_says_nothing(const struct table *t, size_t row, size_t first, size_t end)
{
	while (first < end && (!*cell(t, row, first) || !strcmp(cell(t, row, first), "-")))
		first++;
	return first == end;
}

static void line_print(const struct table *t, const size_t *width, size_t row, size_t first,
		       size_t end)
{
	if (first && line_says_nothing(t, row, first, end))
		return;
	/* No blanks at the end of a line. */
	while (first + 1 < end && !*cell(t, row, end - 1))
		end--;
	fputs(first ? TABLE_INDENT : "", stdout);
	for (; first + 1 < end; first++)
		printf("%-*s" TABLE_GAP, (int)width[first], cell(t, row, first));
	printf("%s\n", cell(t, row, first));
}

void table_print(const struct table *t)
{
	size_t width[TABLE_COLUMNS_MAX], limit = terminal_width(), end;

	if (!t->columns)
		return;
	for (size_t column = 0; column < t->columns; column++)
		width[column] = column_width(t, column);
	for (size_t row = 0; row * t->columns < t->count; row++)
		for (size_t first = 0; first < t->columns; first = end) {
			end = line_end(t, width, first, limit);
			line_print(t, width, row, first, end);
		}
}

void table_free(struct table *t)
{
	for (size_t i = 0; i < t->count; i++)
		free(t->cells[i]);
	free_ptr(&t->cells);
	t->count = 0;
}

void table_print_rows(const struct column *columns, size_t count, const json_t *rows)
{
	int64_t now = now_realtime_ns() / 1000000000;
	cleanup_table struct table table = {.columns = count};
	struct cell cell;
	size_t i;
	json_t *row;

	for (size_t c = 0; c < count; c++)
		table_add(&table, "%s", columns[c].title);
	json_array_foreach(rows, i, row)
	{
		for (size_t c = 0; c < count; c++) {
			column_cell(&columns[c], row, now, &cell);
			table_add(&table, "%s", cell.text);
		}
	}
	table_print(&table);
}
