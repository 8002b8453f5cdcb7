/* Declarations: variables with their initial values, and the shape of parameters. */
#include <errno.h>
#include <string.h>

#include "base/macros.h"
#include "ptx/compile.h"

#define DIMENSIONS_MAX 8
#define VARIABLE_BYTES_MAX (1ULL << 40)
/* Initial values are text, so they are never longer than this. */
#define INIT_BYTES_MAX (1ULL << 30)

bool parse_is_variable_space(const struct compiler *c)
{
	static const char *const spaces[] = {"global", "const", "shared", "local"};

	for (size_t i = 0; i < ARRAY_SIZE(spaces); i++) {
		if (c->token.kind == TOKEN_DOT && token_is(&c->token, spaces[i]))
			return true;
	}
	return false;
}

static void parse_attribute(struct compiler *c)
{
	unsigned depth = 0;

	do {
		if (token_punct(c, '('))
			depth++;
		if (token_punct(c, ')'))
			depth--;
		if (c->token.kind == TOKEN_END)
			token_fail(c, "')'");
		token_advance(c);
	} while (depth > 0);
}

static uint32_t parse_align(struct compiler *c)
{
	uint64_t align = c->token.kind == TOKEN_INT ? c->token.bits : 0;

	if (align == 0 || (align & (align - 1)) || align > 4096)
		token_fail(c, "an alignment");
	token_advance(c);
	return (uint32_t)align;
}

/* .ptr .global .align 4: says where a pointer points; it changes nothing here. */
static void parse_pointer(struct compiler *c)
{
	while (token_accept_dot(c, "global") || token_accept_dot(c, "const") ||
	       token_accept_dot(c, "shared") || token_accept_dot(c, "local") ||
	       token_accept_dot(c, "generic"))
		;
	if (token_accept_dot(c, "align"))
		parse_align(c);
}

static void parse_dimensions(struct compiler *c, struct declaration *declaration)
{
	unsigned count = 0;

	while (token_accept(c, '[')) {
		uint64_t elements = 0;

		if (++count > DIMENSIONS_MAX)
			compile_fail(c, -EINVAL, c->token.line, "too many dimensions");
		if (token_punct(c, ']') && count == 1) {
			declaration->flexible = true;
			elements = 1;
		} else {
			elements = parse_expression(c);
		}
		token_expect(c, ']');
		if (elements > VARIABLE_BYTES_MAX ||
		    declaration->elements > VARIABLE_BYTES_MAX / MAX(elements, 1ULL))
			compile_fail(c, -EINVAL, c->token.line, "the variable is too large");
		declaration->elements *= elements;
	}
}

void parse_declaration(struct compiler *c, struct declaration *ret)
{
	uint64_t vector = 1;

	*ret = (struct declaration){.elements = 1};
	while (c->token.kind == TOKEN_DOT) {
		enum type type = type_parse(c->token.text, c->token.length);

		if (token_accept_dot(c, "align")) {
			ret->align = parse_align(c);
		} else if (token_accept_dot(c, "ptr")) {
			parse_pointer(c);
		} else if (token_accept_dot(c, "v2")) {
			vector = 2;
		} else if (token_accept_dot(c, "v4")) {
			vector = 4;
		} else if (token_accept_dot(c, "attribute")) {
			parse_attribute(c);
		} else if (type != TYPE_NONE && type != TYPE_PRED) {
			ret->type = type;
			token_advance(c);
		} else {
			compile_fail(c, -EINVAL, c->token.line, "unsupported type '.%.*s'",
				     (int)MIN(c->token.length, (size_t)64), c->token.text);
		}
	}
	if (ret->type == TYPE_NONE)
		token_fail(c, "a type");
	if (c->token.kind != TOKEN_NAME)
		token_fail(c, "a name");
	ret->name = c->token;
	if (token_is(&c->token, "_"))
		ret->name.length = 0;
	token_advance(c);
	ret->elements = vector;
	ret->element = token_punct(c, '[') ? type_size(ret->type) : 0;
	parse_dimensions(c, ret);
	ret->align = MAX(ret->align, type_size(ret->type) * (uint32_t)vector);
	if (ret->elements > VARIABLE_BYTES_MAX / 8)
		compile_fail(c, -EINVAL, c->token.line, "the variable is too large");
	ret->size = ret->elements * type_size(ret->type);
}

/* --- initial values */

static void init_reach(struct compiler *c, struct variable *variable, uint64_t end)
{
	if (end > INIT_BYTES_MAX)
		compile_fail(c, -EINVAL, c->token.line, "too many initial values");
	if (end > variable->init_room)
		variable->init = compile_grow(c, variable->init, end, &variable->init_room, 1);
	variable->init_size = MAX(variable->init_size, end);
}

static void init_put(struct compiler *c, struct variable *variable, uint64_t at, uint64_t bits,
		     unsigned size)
{
	init_reach(c, variable, at + size);
	memcpy(variable->init + at, &bits, size);
}

static uint64_t number_bits(double number, enum type type)
{
	uint64_t bits = 0;
	float single = (float)number;

	if (type_size(type) == 8)
		memcpy(&bits, &number, 8);
	else
		memcpy(&bits, &single, 4);
	return bits;
}

/* The name in an initial value: name, generic(name), with + offset. */
static void init_address(struct compiler *c, struct variable *variable, uint64_t at, unsigned size,
			 unsigned shift)
{
	struct relocation relocation = {
		.place = (uint32_t)at, .size = (uint8_t)size, .shift = (uint8_t)shift};
	struct symbol *symbol;

	if (token_is(&c->token, "generic")) {
		token_advance(c);
		token_expect(c, '(');
		relocation.generic = true;
	}
	symbol =
		c->token.kind == TOKEN_NAME ? symbol_find(c, c->token.text, c->token.length) : NULL;
	if (!symbol || (symbol->kind != SYMBOL_VARIABLE && symbol->kind != SYMBOL_FUNCTION))
		token_fail(c, "the name of a variable or function");
	token_advance(c);
	if (relocation.generic)
		token_expect(c, ')');
	if (token_punct(c, '+') || token_punct(c, '-'))
		relocation.addend = (int64_t)parse_expression(c);
	relocation.function = symbol->kind == SYMBOL_FUNCTION;
	relocation.target =
		relocation.function ? (void *)symbol->function : (void *)symbol->variable;
	init_reach(c, variable, at + size);
	variable->relocations = compile_grow(c, variable->relocations, variable->relocation_count,
					     &variable->relocation_room, sizeof(relocation));
	variable->relocations[variable->relocation_count++] = relocation;
}

/* 0xFF00(name): one byte of an address. */
static void init_masked(struct compiler *c, struct variable *variable, uint64_t at, uint64_t mask,
			unsigned size)
{
	unsigned shift = mask ? (unsigned)__builtin_ctzll(mask) : 0;

	if (size != 1 || shift % 8 || mask >> shift != 0xff)
		compile_fail(c, -EINVAL, c->token.line, "bad mask of an address");
	token_expect(c, '(');
	init_address(c, variable, at, 1, shift);
	token_expect(c, ')');
}

static void init_scalar(struct compiler *c, struct variable *variable, enum type type, uint64_t at)
{
	unsigned size = type_size(type);
	bool real = type == TYPE_F32 || type == TYPE_F64;
	uint64_t value;

	if (c->token.kind == TOKEN_NAME) {
		if (size < 4)
			token_fail(c, "a number");
		init_address(c, variable, at, size, 0);
		return;
	}
	if (c->token.kind == TOKEN_FLOAT || (real && token_punct(c, '-'))) {
		bool negative = token_accept(c, '-');
		double number =
			c->token.kind == TOKEN_INT ? (double)c->token.bits : c->token.number;

		if (!real)
			token_fail(c, "an integer");
		if (c->token.kind != TOKEN_FLOAT && c->token.kind != TOKEN_INT)
			token_fail(c, "a number");
		init_put(c, variable, at, number_bits(negative ? -number : number, type), size);
		token_advance(c);
		return;
	}
	value = parse_expression(c);
	if (token_punct(c, '('))
		init_masked(c, variable, at, value, size);
	else
		init_put(c, variable, at, real ? number_bits((double)value, type) : value, size);
}

/* Rows in braces fill the array in its order: only the innermost values count. */
static void init_list(struct compiler *c, struct variable *variable, enum type type, uint64_t limit)
{
	unsigned depth = 0, size = type_size(type);
	uint64_t at = 0;

	do {
		if (token_accept(c, '{')) {
			if (++depth > DIMENSIONS_MAX)
				compile_fail(c, -EINVAL, c->token.line, "too many braces");
			continue;
		}
		if (token_accept(c, '}')) {
			depth--;
			if (depth > 0)
				token_accept(c, ',');
			continue;
		}
		if (at + size > limit)
			compile_fail(c, -EINVAL, c->token.line, "too many initial values");
		init_scalar(c, variable, type, at);
		at += size;
		if (!token_punct(c, '}'))
			token_expect(c, ',');
	} while (depth > 0);
}

static void parse_init(struct compiler *c, struct variable *variable,
		       const struct declaration *declaration)
{
	if (variable->space == VARIABLE_SHARED)
		compile_fail(c, -EINVAL, c->token.line, "a shared variable has no initial value");
	if (!token_punct(c, '{')) {
		init_scalar(c, variable, declaration->type, 0);
		return;
	}
	init_list(c, variable, declaration->type,
		  declaration->flexible ? INIT_BYTES_MAX : declaration->size);
	if (declaration->flexible) {
		uint64_t row = MAX(declaration->size, 1ULL);

		variable->size = ALIGN_UP(variable->init_size, row);
	}
}

/* --- variables */

static void declare_local(struct compiler *c, const struct declaration *declaration)
{
	struct function *function = c->function;
	struct symbol *symbol;

	if (!function)
		compile_fail(c, -EINVAL, declaration->name.line,
			     ".local variables of the module are not supported");
	if (declaration->size > (1u << 24) || function->local_bytes > (1u << 24))
		compile_fail(c, -EINVAL, declaration->name.line, "too much local memory");
	symbol = symbol_add(c, c->scope, &declaration->name, SYMBOL_FRAME);
	symbol->type = declaration->type;
	symbol->element = declaration->element;
	symbol->size = (uint32_t)declaration->size;
	symbol->place = ALIGN_UP(function->local_bytes, declaration->align);
	function->local_bytes = symbol->place + symbol->size;
}

/* A variable may be declared extern before it is defined. */
static struct variable *declare_variable(struct compiler *c, const struct declaration *declaration,
					 enum variable_space space, enum link_kind link)
{
	const struct token *name = &declaration->name;
	struct symbol *symbol = scope_find(c->scope, name->text, name->length);
	struct variable *variable;

	if (symbol && symbol->kind == SYMBOL_VARIABLE &&
	    (symbol->variable->is_extern || link == LINK_EXTERN)) {
		variable = symbol->variable;
		if (variable->space != space)
			compile_fail(c, -EINVAL, name->line, "'%s' changes its space",
				     variable->name);
		if (link == LINK_EXTERN)
			return variable;
	} else {
		symbol = symbol_add(c, c->scope, name, SYMBOL_VARIABLE);
		variable = compile_alloc(c, sizeof(*variable));
		variable->name = arena_copy(&c->module->arena, name->text, name->length);
		if (!variable->name)
			compile_fail(c, -ENOMEM, name->line, "out of memory");
		variable->next = c->module->variables;
		c->module->variables = variable;
		symbol->variable = variable;
	}
	symbol->element = declaration->element;
	variable->space = space;
	variable->size = declaration->size;
	variable->align = MAX(declaration->align, 1u);
	variable->is_extern = link == LINK_EXTERN;
	variable->visible = link == LINK_VISIBLE || link == LINK_WEAK || link == LINK_COMMON;
	variable->weak = link == LINK_WEAK || link == LINK_COMMON;
	variable->source = c->source;
	variable->definition = variable;
	return variable;
}

void parse_variable(struct compiler *c, enum link_kind link)
{
	bool local = token_is(&c->token, "local");
	enum variable_space space = token_is(&c->token, "global")  ? VARIABLE_GLOBAL
				    : token_is(&c->token, "const") ? VARIABLE_CONST
								   : VARIABLE_SHARED;
	struct declaration declaration;
	struct variable *variable;

	token_advance(c);
	/* .const[bank] of old texts */
	if (token_accept(c, '[')) {
		parse_expression(c);
		token_expect(c, ']');
	}
	parse_declaration(c, &declaration);
	if (declaration.name.length == 0)
		token_fail(c, "a name");
	if (local) {
		declare_local(c, &declaration);
		token_expect(c, ';');
		return;
	}
	if (declaration.flexible && space == VARIABLE_SHARED)
		declaration.size = 0;
	variable = declare_variable(c, &declaration, space, link);
	if (token_accept(c, '='))
		parse_init(c, variable, &declaration);
	token_expect(c, ';');
}
