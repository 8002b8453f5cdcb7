#include "ptx/lexer.h"

#include <ctype.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"

/* Longest number that is read: decimal digits of a double beyond this change nothing. */
#define NUMBER_CHARS 127
#define WARP_SIZE 32

void lexer_init(struct lexer *lexer, const char *text, size_t length)
{
	size_t terminated = strnlen(text, length);

	*lexer = (struct lexer){.at = text, .end = text + terminated, .line = 1};
}

static bool is_name(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '$';
}

static char peek(const struct lexer *lexer, size_t ahead)
{
	if ((size_t)(lexer->end - lexer->at) <= ahead)
		return '\0';
	return lexer->at[ahead];
}

static void skip_block_comment(struct lexer *lexer)
{
	lexer->at += 2;
	while (lexer->at < lexer->end && !(peek(lexer, 0) == '*' && peek(lexer, 1) == '/')) {
		if (*lexer->at == '\n')
			lexer->line++;
		lexer->at++;
	}
	lexer->at = MIN(lexer->at + 2, lexer->end);
}

static void skip_blank(struct lexer *lexer)
{
	while (lexer->at < lexer->end) {
		char c = *lexer->at;

		if (c == '/' && peek(lexer, 1) == '/') {
			while (lexer->at < lexer->end && *lexer->at != '\n')
				lexer->at++;
		} else if (c == '/' && peek(lexer, 1) == '*') {
			skip_block_comment(lexer);
		} else if (isspace((unsigned char)c)) {
			if (c == '\n')
				lexer->line++;
			lexer->at++;
		} else {
			break;
		}
	}
}

/* 0fXXXXXXXX and 0dXXXXXXXXXXXXXXXX: the bits of a float. */
static bool lex_float_bits(struct lexer *lexer, struct token *token)
{
	bool single = tolower(peek(lexer, 1)) == 'f';
	size_t digits = single ? 8 : 16;
	char text[17] = "";

	for (size_t i = 0; i < digits; i++) {
		if (!isxdigit((unsigned char)peek(lexer, 2 + i)))
			return false;
		text[i] = peek(lexer, 2 + i);
	}
	token->bits = strtoull(text, NULL, 16);
	token->kind = TOKEN_FLOAT;
	token->single = single;
	if (single) {
		uint32_t bits = (uint32_t)token->bits;
		float value;

		memcpy(&value, &bits, sizeof(value));
		token->number = value;
	} else {
		memcpy(&token->number, &token->bits, sizeof(token->number));
	}
	lexer->at += 2 + digits;
	return true;
}

static bool is_decimal_float(const char *text)
{
	size_t digits = strspn(text, "0123456789");

	return text[digits] == '.' || text[digits] == 'e' || text[digits] == 'E';
}

/* The number that `text` starts with; returns where it stops. A decimal point is a point in any
 * locale of the process. */
static const char *read_number(const char *text, struct token *token)
{
	bool binary = text[0] == '0' && (text[1] == 'b' || text[1] == 'B');
	char *stop;

	if (is_decimal_float(text)) {
		token->kind = TOKEN_FLOAT;
		token->number = strtod_l(text, &stop, newlocale(LC_ALL_MASK, "C", (locale_t)0));
		return stop;
	}
	token->kind = TOKEN_INT;
	token->bits = strtoull(binary ? text + 2 : text, &stop, binary ? 2 : 0);
	return *stop == 'U' ? stop + 1 : stop;
}

static void lex_number(struct lexer *lexer, struct token *token)
{
	char text[NUMBER_CHARS + 1];
	size_t length = MIN((size_t)(lexer->end - lexer->at), (size_t)NUMBER_CHARS);
	int second = tolower(peek(lexer, 1));

	if (peek(lexer, 0) == '0' && (second == 'f' || second == 'd') &&
	    lex_float_bits(lexer, token))
		return;
	memcpy(text, lexer->at, length);
	text[length] = '\0';
	lexer->at += MAX(read_number(text, token) - text, 1);
	if (lexer->at < lexer->end && is_name(*lexer->at))
		token->kind = TOKEN_BAD;
}

static void lex_string(struct lexer *lexer, struct token *token)
{
	const char *start = ++lexer->at;

	while (lexer->at < lexer->end && *lexer->at != '"' && *lexer->at != '\n')
		lexer->at++;
	token->kind = lexer->at < lexer->end && *lexer->at == '"' ? TOKEN_STRING : TOKEN_BAD;
	token->text = start;
	token->length = (size_t)(lexer->at - start);
	if (token->kind == TOKEN_STRING)
		lexer->at++;
}

static void lex_word(struct lexer *lexer, struct token *token)
{
	bool dot = *lexer->at == '.';
	const char *start = dot ? lexer->at + 1 : lexer->at;

	lexer->at++;
	while (lexer->at < lexer->end &&
	       (is_name(*lexer->at) || (dot && peek(lexer, 0) == ':' && peek(lexer, 1) == ':')))
		lexer->at += *lexer->at == ':' ? 2 : 1;
	token->kind = dot ? TOKEN_DOT : TOKEN_NAME;
	token->text = start;
	token->length = (size_t)(lexer->at - start);
	if (token->length == 0)
		token->kind = TOKEN_BAD;
}

/* The one constant that has a name stands wherever a number may, and nothing else is called so. */
static void lex_constant(struct token *token)
{
	if (token->kind != TOKEN_NAME || !token_is(token, "WARP_SZ"))
		return;
	token->kind = TOKEN_INT;
	token->bits = WARP_SIZE;
}

void lexer_next(struct lexer *lexer, struct token *ret_token)
{
	char c;

	skip_blank(lexer);
	*ret_token = (struct token){.kind = TOKEN_END, .text = lexer->at, .line = lexer->line};
	if (lexer->at >= lexer->end)
		return;
	c = *lexer->at;
	if (isdigit((unsigned char)c)) {
		lex_number(lexer, ret_token);
	} else if (is_name(c) || c == '%' || c == '.') {
		lex_word(lexer, ret_token);
		lex_constant(ret_token);
		return;
	} else if (c == '"') {
		lex_string(lexer, ret_token);
		return;
	} else {
		ret_token->kind = strchr("[](){}<>,;:+-*/!|&^~@=%?", c) ? TOKEN_PUNCT : TOKEN_BAD;
		lexer->at++;
	}
	ret_token->length = (size_t)(lexer->at - ret_token->text);
}

bool token_is(const struct token *token, const char *text)
{
	return token->length == strlen(text) && memcmp(token->text, text, token->length) == 0;
}
