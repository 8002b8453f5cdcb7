/* PTX text into tokens. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum token_kind {
	TOKEN_END,
	TOKEN_NAME,   /* identifier: foo, %r1, $L, _ */
	TOKEN_DOT,    /* .word, without its dot in `text`; may hold "::" */
	TOKEN_INT,    /* value in `bits`; WARP_SZ too */
	TOKEN_FLOAT,  /* 0fXXXXXXXX (single) or 1.5, 0dXXXXXXXXXXXXXXXX (double): in `number` */
	TOKEN_STRING, /* without its quotes */
	TOKEN_PUNCT,  /* one character, in text[0] */
	TOKEN_BAD,    /* text that cannot be PTX */
};

struct token {
	enum token_kind kind;
	const char *text; /* into the source; not terminated */
	size_t length;
	uint32_t line; /* from 1 */
	uint64_t bits;
	double number;
	bool single; /* a float written as single-precision bits (in `bits` too) */
};

struct lexer {
	const char *at, *end;
	uint32_t line;
};

/* The source must outlive the tokens. */
void lexer_init(struct lexer *lexer, const char *text, size_t length);
/* At the end, TOKEN_END again and again. */
void lexer_next(struct lexer *lexer, struct token *ret_token);
bool token_is(const struct token *token, const char *text);
