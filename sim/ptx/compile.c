/* From sources to a linked module. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "ptx/compile.h"
#include "ptx/exec/exec.h"

void compile_fail(struct compiler *c, int status, uint32_t line, const char *format, ...)
{
	int length = 0;

	c->status = status;
	if (c->log_size > 0) {
		va_list args;

		length = snprintf(c->log, c->log_size,
				  "%s line %u: ", c->source_name ? c->source_name : "ptx", line);
		if (length >= 0 && (size_t)length < c->log_size) {
			va_start(args, format);
			/* clang 14 does not follow va_start: */
			/* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
			vsnprintf(c->log + length, c->log_size - (size_t)length, format, args);
			va_end(args);
		}
	}
	longjmp(c->escape, 1);
}

static void *alloc_or_fail(struct compiler *c, struct arena *arena, size_t size)
{
	void *result = arena_alloc(arena, size);

	if (!result)
		compile_fail(c, -ENOMEM, c->token.line, "out of memory");
	return result;
}

void *compile_alloc(struct compiler *c, size_t size)
{
	return alloc_or_fail(c, &c->module->arena, size);
}

void *compile_scratch(struct compiler *c, size_t size)
{
	return alloc_or_fail(c, &c->scratch, size);
}

void *compile_grow(struct compiler *c, void *array, size_t count, size_t *room, size_t unit)
{
	size_t wanted = MAX(2 * *room, MAX(count + 1, (size_t)8));
	void *grown;

	if (count < *room)
		return array;
	grown = compile_alloc(c, wanted * unit);
	if (*room > 0)
		memcpy(grown, array, *room * unit);
	*room = wanted;
	return grown;
}

/* The executor reads constants as vectors, so they move to where vectors may lie. */
static void align_constants(struct compiler *c)
{
	struct buffer *buffer = &c->module->constants;
	unsigned char *aligned = aligned_alloc(64, ALIGN_UP(buffer->size + 1, (size_t)64));

	if (!aligned)
		compile_fail(c, -ENOMEM, 0, "out of memory");
	if (buffer->size > 0)
		memcpy(aligned, buffer->bytes, buffer->size);
	buffer->bytes = aligned;
	buffer->room = 0;
}

static void compile_source(struct compiler *c, const struct ptx_source *source, size_t index)
{
	c->source = index;
	c->source_name = source->name;
	c->ptx_version = c->sm = 0;
	lexer_init(&c->lexer, source->text, source->length);
	scope_push(c);
	parse_module(c);
	c->scope = NULL;
}

/* Apart from the setjmp, so that nothing of its caller's is in doubt. */
static int compile_all(struct compiler *c, const struct ptx_source *sources, size_t count)
{
	const exec_fn *handlers = exec_handlers();

	if (setjmp(c->escape))
		return c->status;
	for (size_t i = 0; i < count; i++)
		compile_source(c, &sources[i], i);
	c->source_name = NULL;
	link_module(c);
	align_constants(c);
	for (size_t i = 0; i < c->module->code_count; i++)
		c->module->code[i].run = handlers[c->module->code[i].op];
	return 0;
}

int ptx_module_compile(const struct ptx_source *sources, size_t source_count,
		       const struct ptx_options *options, char *log, size_t log_size,
		       struct ptx_module **ret_module)
{
	struct compiler *c = calloc(1, sizeof(*c));
	int status = -ENOMEM;

	if (log_size > 0)
		log[0] = '\0';
	if (!c)
		return -ENOMEM;
	c->log = log;
	c->log_size = log_size;
	c->options = options;
	c->module = calloc(1, sizeof(*c->module));
	if (c->module)
		status = compile_all(c, sources, source_count);
	arena_free(&c->scratch);
	if (status == 0)
		*ret_module = c->module;
	else
		ptx_module_free(c->module);
	free(c);
	return status;
}
