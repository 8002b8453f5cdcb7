/* The body of a function: declarations, labels and instructions. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "ptx/compile.h"

#define RANGE_MAX 1000000

static struct symbol *label_get(struct compiler *c, const struct token *name)
{
	struct symbol *symbol = symbol_find(c, name->text, name->length);

	return symbol ? symbol : symbol_add(c, c->scope, name, SYMBOL_LABEL);
}

/* --- operands */

static void operand_name(struct compiler *c, struct operand *operand)
{
	struct token name = c->token;
	char special[32];
	int length;

	token_advance(c);
	if (token_is(&name, "_")) {
		operand->kind = OPERAND_SINK;
		return;
	}
	operand->symbol = symbol_find(c, name.text, name.length);
	if (!operand->symbol && c->names_labels)
		operand->symbol = label_get(c, &name);
	if (operand->symbol) {
		operand->kind = OPERAND_SYMBOL;
		return;
	}
	if (c->token.kind == TOKEN_DOT && name.text[0] == '%') {
		length = snprintf(special, sizeof(special), "%.*s.%.*s", (int)name.length,
				  name.text, (int)c->token.length, c->token.text);
		token_advance(c);
	} else {
		length = snprintf(special, sizeof(special), "%.*s", (int)name.length, name.text);
	}
	operand->special =
		length < (int)sizeof(special) ? special_find(special, (size_t)length) : -1;
	if (operand->special < 0)
		compile_fail(c, -EINVAL, name.line, "unknown name '%.*s'",
			     (int)MIN(name.length, (size_t)200), name.text);
	operand->kind = OPERAND_SPECIAL;
}

static void operand_number(struct compiler *c, struct operand *operand)
{
	struct lexer before = c->lexer;
	struct token first = c->token;
	bool negative = token_accept(c, '-');

	if (c->token.kind == TOKEN_FLOAT) {
		operand->kind = OPERAND_FLOAT;
		operand->number = negative ? -c->token.number : c->token.number;
		operand->single = c->token.single;
		operand->bits = c->token.bits ^ (negative ? 1ULL << 31 : 0);
		token_advance(c);
		return;
	}
	c->lexer = before;
	c->token = first;
	operand->kind = OPERAND_INT;
	operand->bits = parse_expression(c);
}

static void operand_offset(struct compiler *c, struct operand *operand)
{
	if (token_punct(c, '+') || token_punct(c, '-'))
		operand->offset = (int64_t)parse_expression(c);
}

/* name[n]: where an element of an array is; of the innermost ones, however it was declared. */
static void operand_index(struct compiler *c, struct operand *operand)
{
	const struct symbol *symbol = operand->symbol;

	if (!token_punct(c, '['))
		return;
	if (operand->kind != OPERAND_SYMBOL || !symbol->element)
		compile_fail(c, -EINVAL, c->token.line, "an index of what is no array");
	token_advance(c);
	operand->offset = (int64_t)(parse_expression(c) * symbol->element);
	operand->indexed = true;
	token_expect(c, ']');
}

/* The token after `[`. */
static void operand_address(struct compiler *c, struct operand *operand)
{
	if (c->token.kind == TOKEN_NAME) {
		operand_name(c, operand);
		if (operand->kind != OPERAND_SYMBOL)
			token_fail(c, "an address");
		operand_offset(c, operand);
	} else {
		operand->offset = (int64_t)parse_expression(c);
	}
	operand->kind = OPERAND_ADDRESS;
	token_expect(c, ']');
}

static void operand_list(struct compiler *c, struct operand *operand, char close)
{
	operand->kind = OPERAND_VECTOR;
	operand->elements = compile_alloc(c, sizeof(*operand->elements) * ELEMENTS_MAX);
	while (!token_punct(c, close)) {
		if (operand->element_count == ELEMENTS_MAX)
			compile_fail(c, -EINVAL, c->token.line, "a vector has too many elements");
		if (token_punct(c, '{') || token_punct(c, '['))
			token_fail(c, "an element");
		parse_operand(c, &operand->elements[operand->element_count++]);
		if (!token_punct(c, close))
			token_expect(c, ',');
	}
	token_expect(c, close);
}

void parse_operand(struct compiler *c, struct operand *ret)
{
	*ret = (struct operand){.special = -1};
	if (token_accept(c, '[')) {
		operand_address(c, ret);
	} else if (token_accept(c, '{')) {
		operand_list(c, ret, '}');
	} else if (token_accept(c, '!')) {
		if (c->token.kind != TOKEN_NAME)
			token_fail(c, "a predicate");
		operand_name(c, ret);
		ret->negated = true;
	} else if (c->token.kind == TOKEN_NAME) {
		operand_name(c, ret);
		operand_index(c, ret);
		if (!ret->indexed)
			operand_offset(c, ret);
	} else {
		operand_number(c, ret);
	}
	if (token_accept(c, '|')) {
		ret->pair = compile_alloc(c, sizeof(*ret->pair));
		if (c->token.kind != TOKEN_NAME)
			token_fail(c, "a predicate");
		*ret->pair = (struct operand){.special = -1};
		operand_name(c, ret->pair);
	}
}

/* --- calls: call (ret), name, (arguments), prototype; */

/* Argument lists are longer than vectors. */
static void call_list(struct compiler *c, struct operand *operand)
{
	size_t room = 0;

	*operand = (struct operand){.kind = OPERAND_VECTOR, .special = -1};
	token_expect(c, '(');
	while (!token_punct(c, ')')) {
		operand->elements = compile_grow(c, operand->elements, operand->element_count,
						 &room, sizeof(*operand->elements));
		parse_operand(c, &operand->elements[operand->element_count++]);
		if (!token_punct(c, ')'))
			token_expect(c, ',');
	}
	token_expect(c, ')');
}

static void parse_call(struct compiler *c, struct statement *statement)
{
	struct operand *operands = statement->operands;

	operands[0] = operands[2] = (struct operand){.kind = OPERAND_VECTOR, .special = -1};
	statement->operand_count = 3;
	if (token_punct(c, '(')) {
		call_list(c, &operands[0]);
		token_expect(c, ',');
	}
	parse_operand(c, &operands[1]);
	if (!token_accept(c, ','))
		return;
	if (token_punct(c, '(')) {
		call_list(c, &operands[2]);
		if (!token_accept(c, ','))
			return;
	}
	parse_operand(c, &operands[3]);
	statement->operand_count = 4;
}

/* --- statements */

static void parse_modifiers(struct compiler *c, struct statement *statement)
{
	while (c->token.kind == TOKEN_DOT) {
		if (statement->modifier_count == MODIFIERS_MAX)
			compile_fail(c, -EINVAL, c->token.line, "too many modifiers");
		statement->modifiers[statement->modifier_count++] =
			(struct modifier){.text = c->token.text, .length = c->token.length};
		token_advance(c);
	}
}

static void parse_instruction(struct compiler *c, const struct token *name)
{
	struct statement *statement = &c->statement;

	if (!lower_knows(name))
		compile_fail(c, -EINVAL, name->line, "unknown or unsupported instruction '%.*s'",
			     (int)MIN(name->length, (size_t)64), name->text);
	*statement = (struct statement){.name = *name, .line = name->line};
	parse_modifiers(c, statement);
	c->names_labels = token_is(name, "bra") || token_is(name, "brx");
	if (token_is(name, "call")) {
		parse_call(c, statement);
	} else if (!token_punct(c, ';')) {
		do {
			if (statement->operand_count == OPERANDS_MAX)
				compile_fail(c, -EINVAL, c->token.line, "too many operands");
			parse_operand(c, &statement->operands[statement->operand_count++]);
		} while (token_accept(c, ','));
	}
	c->names_labels = false;
	if (!token_punct(c, ';'))
		token_fail(c, "';'");
	lower_statement(c);
	c->guard = 0;
	token_advance(c);
}

static void parse_guard(struct compiler *c)
{
	struct symbol *symbol;
	bool negated = token_accept(c, '!');

	symbol =
		c->token.kind == TOKEN_NAME ? symbol_find(c, c->token.text, c->token.length) : NULL;
	if (!symbol || symbol->kind != SYMBOL_REGISTER || symbol->type != TYPE_PRED)
		token_fail(c, "a predicate");
	c->guard = symbol->place | (negated ? 1u : 0u);
	token_advance(c);
	if (c->token.kind != TOKEN_NAME)
		token_fail(c, "an instruction");
}

/* .reg .b32 %r<9>, x; */
static void parse_registers(struct compiler *c)
{
	enum type type =
		c->token.kind == TOKEN_DOT ? type_parse(c->token.text, c->token.length) : TYPE_NONE;

	if (type_size(type) == 1)
		type = TYPE_B16; /* no register is narrower */
	if (type == TYPE_NONE)
		compile_fail(c, -EINVAL, c->token.line, "unsupported register type '.%.*s'",
			     (int)MIN(c->token.length, (size_t)64), c->token.text);
	do {
		struct token name;
		struct symbol *symbol;

		token_advance(c); /* the type, or the comma */
		name = c->token;
		if (name.kind != TOKEN_NAME)
			token_fail(c, "a name");
		token_advance(c);
		if (token_accept(c, '<')) {
			uint64_t count = parse_expression(c);

			if (count > RANGE_MAX)
				compile_fail(c, -EINVAL, name.line, "too many registers");
			token_expect(c, '>');
			symbol = symbol_add(c, c->scope, &name, SYMBOL_REGISTER_RANGE);
			symbol->size = (uint32_t)count;
		} else {
			symbol = symbol_add(c, c->scope, &name, SYMBOL_REGISTER);
			symbol->place = register_make(c, type);
		}
		symbol->type = type;
	} while (token_punct(c, ','));
	token_expect(c, ';');
}

/* .param .b32 retval0; of a call: local memory of the frame. */
static void parse_call_param(struct compiler *c)
{
	struct function *function = c->function;
	struct declaration declaration;
	struct symbol *symbol;

	parse_declaration(c, &declaration);
	if (declaration.name.length == 0)
		token_fail(c, "a name");
	if (declaration.size > (1u << 20) || function->local_bytes > (1u << 24))
		compile_fail(c, -EINVAL, c->token.line, "the parameters are too large");
	symbol = symbol_add(c, c->scope, &declaration.name, SYMBOL_FRAME);
	symbol->type = declaration.type;
	symbol->element = declaration.element;
	symbol->size = (uint32_t)declaration.size;
	symbol->place = ALIGN_UP(function->local_bytes, MAX(declaration.align, 8u));
	function->local_bytes = symbol->place + symbol->size;
	token_expect(c, ';');
}

static void parse_label_list(struct compiler *c, const struct token *name)
{
	struct symbol *symbol = symbol_add(c, c->scope, name, SYMBOL_LABEL_LIST);
	struct label_list *list = compile_alloc(c, sizeof(*list));
	size_t room = 0;

	symbol->list = list;
	do {
		if (c->token.kind != TOKEN_NAME)
			token_fail(c, "a label");
		list->labels =
			compile_grow(c, list->labels, list->count, &room, sizeof(struct symbol *));
		list->labels[list->count] = label_get(c, &c->token);
		if (list->labels[list->count]->kind != SYMBOL_LABEL)
			token_fail(c, "a label");
		list->count++;
		token_advance(c);
	} while (token_accept(c, ','));
	token_expect(c, ';');
}

/* A prototype changes nothing here: a call through a pointer is checked against its callee. */
static void parse_prototype(struct compiler *c, const struct token *name)
{
	symbol_add(c, c->scope, name, SYMBOL_PROTOTYPE);
	while (c->token.kind != TOKEN_END && !token_punct(c, ';'))
		token_advance(c);
	token_expect(c, ';');
}

static void place_label(struct compiler *c, const struct token *name)
{
	struct symbol *label = scope_find(c->scope, name->text, name->length);

	if (!label || label->kind != SYMBOL_LABEL || label->index != UINT32_MAX)
		label = symbol_add(c, c->scope, name, SYMBOL_LABEL);
	label->index = (uint32_t)c->function->code_count;
	flow_label(c);
}

static void parse_labelled(struct compiler *c, const struct token *name)
{
	if (token_accept_dot(c, "branchtargets"))
		parse_label_list(c, name);
	else if (token_accept_dot(c, "callprototype") || token_accept_dot(c, "calltargets"))
		parse_prototype(c, name);
	else
		place_label(c, name);
}

static void parse_body_directive(struct compiler *c)
{
	if (token_accept_dot(c, "reg")) {
		parse_registers(c);
	} else if (token_accept_dot(c, "param")) {
		parse_call_param(c);
	} else if (parse_is_variable_space(c)) {
		parse_variable(c, LINK_NONE);
	} else if (token_is(&c->token, "loc") || token_is(&c->token, "file") ||
		   token_is(&c->token, "pragma")) {
		parse_skip_line(c);
	} else {
		token_fail(c, "a statement");
	}
}

static void parse_statement(struct compiler *c)
{
	struct token name;

	if (c->token.kind == TOKEN_DOT) {
		parse_body_directive(c);
		return;
	}
	if (token_accept(c, '@'))
		parse_guard(c);
	if (c->token.kind != TOKEN_NAME)
		token_fail(c, "a statement");
	name = c->token;
	token_advance(c);
	if (!c->guard && token_accept(c, ':'))
		parse_labelled(c, &name);
	else
		parse_instruction(c, &name);
}

void parse_body(struct compiler *c)
{
	unsigned depth = 1;

	while (depth > 0) {
		if (token_accept(c, '{')) {
			scope_push(c);
			depth++;
		} else if (token_accept(c, '}')) {
			depth--;
			if (depth > 0)
				scope_pop(c);
		} else if (!token_accept(c, ';')) {
			parse_statement(c);
		}
	}
}
