/* The module's level of PTX: directives, and what hands over to variables and functions. */
#include <errno.h>
#include <string.h>

#include "base/macros.h"
#include "ptx/compile.h"

#define EXPRESSION_DEPTH_MAX 100

void token_advance(struct compiler *c)
{
	lexer_next(&c->lexer, &c->token);
	if (c->token.kind == TOKEN_BAD)
		compile_fail(c, -EINVAL, c->token.line, "unexpected character '%.*s'",
			     (int)MIN(c->token.length, (size_t)32), c->token.text);
}

bool token_punct(const struct compiler *c, char punct)
{
	return c->token.kind == TOKEN_PUNCT && c->token.text[0] == punct;
}

bool token_accept(struct compiler *c, char punct)
{
	if (!token_punct(c, punct))
		return false;
	token_advance(c);
	return true;
}

void token_fail(struct compiler *c, const char *wanted)
{
	if (c->token.kind == TOKEN_END)
		compile_fail(c, -EINVAL, c->token.line, "expected %s before the end", wanted);
	compile_fail(c, -EINVAL, c->token.line, "expected %s before '%s%.*s'", wanted,
		     c->token.kind == TOKEN_DOT ? "." : "", (int)MIN(c->token.length, (size_t)64),
		     c->token.text);
}

void token_expect(struct compiler *c, char punct)
{
	char wanted[] = {'\'', punct, '\'', '\0'};

	if (!token_accept(c, punct))
		token_fail(c, wanted);
}

bool token_accept_dot(struct compiler *c, const char *word)
{
	if (c->token.kind != TOKEN_DOT || !token_is(&c->token, word))
		return false;
	token_advance(c);
	return true;
}

static uint64_t parse_sum(struct compiler *c, unsigned depth);

static uint64_t parse_primary(struct compiler *c, unsigned depth)
{
	uint64_t value;

	if (depth > EXPRESSION_DEPTH_MAX)
		compile_fail(c, -EINVAL, c->token.line, "an expression is nested too deeply");
	if (token_accept(c, '-'))
		return 0 - parse_primary(c, depth + 1);
	if (token_accept(c, '+'))
		return parse_primary(c, depth + 1);
	if (token_accept(c, '~'))
		return ~parse_primary(c, depth + 1);
	if (token_accept(c, '(')) {
		value = parse_sum(c, depth + 1);
		token_expect(c, ')');
		return value;
	}
	if (c->token.kind != TOKEN_INT)
		token_fail(c, "a number");
	value = c->token.bits;
	token_advance(c);
	return value;
}

static uint64_t parse_product(struct compiler *c, unsigned depth)
{
	uint64_t value = parse_primary(c, depth);

	for (;;) {
		if (token_accept(c, '*')) {
			value *= parse_primary(c, depth);
		} else if (token_punct(c, '/')) {
			uint64_t divisor;

			token_advance(c);
			divisor = parse_primary(c, depth);
			if (divisor == 0)
				compile_fail(c, -EINVAL, c->token.line, "division by zero");
			value /= divisor;
		} else {
			return value;
		}
	}
}

static uint64_t parse_sum(struct compiler *c, unsigned depth)
{
	uint64_t value = parse_product(c, depth);

	for (;;) {
		if (token_accept(c, '+'))
			value += parse_product(c, depth);
		else if (token_accept(c, '-'))
			value -= parse_product(c, depth);
		else
			return value;
	}
}

uint64_t parse_expression(struct compiler *c)
{
	return parse_sum(c, 0);
}

void parse_skip_line(struct compiler *c)
{
	uint32_t line = c->token.line;

	while (c->token.kind != TOKEN_END && c->token.line == line)
		token_advance(c);
}

/* "8.4" -> 84 */
static void parse_version(struct compiler *c)
{
	int limit = c->options->ptx_version_max ? c->options->ptx_version_max : PTX_VERSION_MAX;
	double number = c->token.kind == TOKEN_INT ? (double)c->token.bits : c->token.number;

	if (c->token.kind != TOKEN_FLOAT && c->token.kind != TOKEN_INT)
		token_fail(c, "a version");
	if (!(number >= 1 && number < 100))
		compile_fail(c, -EINVAL, c->token.line, "bad .version");
	c->ptx_version = (int)(number * 10 + 0.5);
	if (c->ptx_version > limit)
		compile_fail(c, -ENOTSUP, c->token.line, ".version %d.%d is newer than %d.%d",
			     c->ptx_version / 10, c->ptx_version % 10, limit / 10, limit % 10);
	token_advance(c);
}

static bool parse_sm(const struct token *token, int *ret_sm, char *ret_suffix)
{
	size_t at = 3;
	int sm = 0;

	if (token->length < 5 || token->length > 7 || memcmp(token->text, "sm_", 3) != 0)
		return false;
	for (; at < token->length && token->text[at] >= '0' && token->text[at] <= '9'; at++)
		sm = sm * 10 + (token->text[at] - '0');
	*ret_suffix = '\0';
	if (at < token->length)
		*ret_suffix = token->text[at];
	*ret_sm = sm;
	return at + (*ret_suffix ? 1 : 0) == token->length &&
	       (!*ret_suffix || *ret_suffix == 'a' || *ret_suffix == 'f');
}

/* .target sm_90, debug, ... */
static void parse_target(struct compiler *c)
{
	static const char *const options[] = {"debug", "texmode_unified", "texmode_independent",
					      "map_f64_to_f32"};

	do {
		char suffix;
		int sm;

		if (parse_sm(&c->token, &sm, &suffix)) {
			bool fits = suffix == 'a'   ? sm == c->options->sm
				    : suffix == 'f' ? sm / 10 == c->options->sm / 10
						    : true;

			if (sm > c->options->sm || !fits)
				compile_fail(c, -ENOTSUP, c->token.line,
					     ".target %.*s is not for this device (sm_%d)",
					     (int)c->token.length, c->token.text, c->options->sm);
			c->sm = sm;
		} else {
			bool known = false;

			for (size_t i = 0; i < ARRAY_SIZE(options); i++)
				known = known || token_is(&c->token, options[i]);
			if (!known)
				token_fail(c, "a target");
		}
		token_advance(c);
	} while (token_accept(c, ','));
}

static void parse_section(struct compiler *c)
{
	while (c->token.kind != TOKEN_END && !token_punct(c, '{'))
		token_advance(c);
	while (c->token.kind != TOKEN_END && !token_punct(c, '}'))
		token_advance(c);
	token_expect(c, '}');
}

static void parse_alias(struct compiler *c)
{
	struct symbol *alias = symbol_find(c, c->token.text, c->token.length), *target;

	token_advance(c);
	token_expect(c, ',');
	target = symbol_find(c, c->token.text, c->token.length);
	if (!alias || !target || alias->kind != SYMBOL_FUNCTION ||
	    target->kind != SYMBOL_FUNCTION || alias->function == target->function)
		compile_fail(c, -EINVAL, c->token.line, "bad .alias");
	if (target->function->definition != target->function || alias->function->is_defined)
		compile_fail(c, -EINVAL, c->token.line, "bad .alias");
	alias->function->definition = target->function;
	alias->function->is_extern = false;
	token_advance(c);
	token_expect(c, ';');
}

static enum link_kind parse_linkage(struct compiler *c)
{
	if (token_accept_dot(c, "extern"))
		return LINK_EXTERN;
	if (token_accept_dot(c, "visible"))
		return LINK_VISIBLE;
	if (token_accept_dot(c, "weak"))
		return LINK_WEAK;
	if (token_accept_dot(c, "common"))
		return LINK_COMMON;
	return LINK_NONE;
}

static void parse_declared(struct compiler *c)
{
	enum link_kind link = parse_linkage(c);

	if (c->token.kind == TOKEN_DOT &&
	    (token_is(&c->token, "entry") || token_is(&c->token, "func")))
		parse_function(c, link);
	else if (parse_is_variable_space(c))
		parse_variable(c, link);
	else
		token_fail(c, "a directive");
}

static void parse_directive(struct compiler *c)
{
	if (token_accept_dot(c, "version")) {
		parse_version(c);
	} else if (token_accept_dot(c, "target")) {
		parse_target(c);
	} else if (token_accept_dot(c, "address_size")) {
		if (c->token.kind != TOKEN_INT || c->token.bits != 64)
			compile_fail(c, -EINVAL, c->token.line, "only .address_size 64");
		token_advance(c);
	} else if (token_accept_dot(c, "file") || token_accept_dot(c, "loc") ||
		   token_accept_dot(c, "pragma")) {
		parse_skip_line(c);
	} else if (token_accept_dot(c, "section")) {
		parse_section(c);
	} else if (token_accept_dot(c, "alias")) {
		parse_alias(c);
	} else {
		parse_declared(c);
	}
}

void parse_module(struct compiler *c)
{
	token_advance(c);
	if (c->token.kind != TOKEN_DOT || !token_is(&c->token, "version"))
		token_fail(c, ".version");
	while (c->token.kind != TOKEN_END) {
		if (c->token.kind != TOKEN_DOT)
			token_fail(c, "a directive");
		parse_directive(c);
	}
	if (c->sm == 0)
		compile_fail(c, -EINVAL, c->token.line, "no .target");
}
