/* The state that the parser and the lowering share while they compile. Any failure leaves by
 * compile_fail() (a longjmp to ptx_module_compile): everything lies in the module's arena or in the
 * compilation, so nothing leaks. */
#pragma once

#include <setjmp.h>

#include "ptx/code.h"
#include "ptx/lexer.h"

#define OPERANDS_MAX 8
#define ELEMENTS_MAX 8
#define MODIFIERS_MAX 16
#define SCOPE_BUCKETS 64
#define SCOPE_DEPTH_MAX 100

enum symbol_kind {
	SYMBOL_REGISTER,
	SYMBOL_REGISTER_RANGE, /* .reg .b32 %r<9>: made one by one when used */
	SYMBOL_VARIABLE,
	SYMBOL_FRAME, /* .local and .param of a function: local memory of its frame */
	SYMBOL_KERNEL_PARAM,
	SYMBOL_FUNCTION,
	SYMBOL_LABEL,
	SYMBOL_LABEL_LIST, /* .branchtargets */
	SYMBOL_PROTOTYPE,  /* .callprototype, .calltargets */
};

struct label_list {
	uint32_t count;
	struct symbol **labels;
};

struct symbol {
	struct symbol *next;
	const char *name;
	size_t length;
	enum symbol_kind kind;
	enum type type;   /* the type of a register or range */
	uint32_t place;   /* value_ref; offset in the frame or the parameters */
	uint32_t size;    /* bytes of a parameter or frame variable; registers of a range */
	uint32_t element; /* bytes of an array's element; 0: no array */
	uint32_t index;   /* label: of the instruction; UINT32_MAX: not seen yet */
	uint32_t line;
	struct variable *variable;
	struct function *function;
	struct label_list *list;
	struct symbol *alias; /* label: the one of the scope around that is meant */
};

struct scope {
	struct scope *parent;
	struct symbol *buckets[SCOPE_BUCKETS];
	unsigned depth;
};

enum operand_kind {
	OPERAND_NONE,
	OPERAND_SINK, /* _ */
	OPERAND_SYMBOL,
	OPERAND_SPECIAL, /* a special register */
	OPERAND_INT,
	OPERAND_FLOAT,
	OPERAND_ADDRESS, /* [symbol + offset], [offset] */
	OPERAND_VECTOR,
};

struct operand {
	enum operand_kind kind;
	bool negated; /* !p */
	struct symbol *symbol;
	int special; /* enum special */
	uint64_t bits;
	double number;
	bool single;    /* see struct token */
	int64_t offset; /* symbol + offset */
	bool indexed;   /* symbol[n] */
	struct operand *elements;
	unsigned element_count;
	struct operand *pair; /* p|q */
};

struct modifier {
	const char *text;
	size_t length;
	bool used;
};

/* One instruction as written. */
struct statement {
	struct token name;
	struct modifier modifiers[MODIFIERS_MAX];
	unsigned modifier_count;
	struct operand operands[OPERANDS_MAX];
	unsigned operand_count;
	uint32_t line;
};

/* A branch that waits for its label. */
struct fixup {
	size_t insn;
	struct symbol *label;
};

struct constant {
	struct constant *next;
	uint64_t bits;
	uint32_t place;
	unsigned size;
};

#define CONSTANT_BUCKETS 1024

struct compiler {
	jmp_buf escape;
	int status; /* the status that compile_fail was given */
	char *log;
	size_t log_size;
	const struct ptx_options *options;
	struct ptx_module *module;
	struct arena scratch;
	struct constant *constants[CONSTANT_BUCKETS];
	size_t code_room; /* room in module->code */

	/* The source. */
	size_t source;
	const char *source_name;
	struct lexer lexer;
	struct token token;
	struct scope *scope; /* innermost */
	int ptx_version, sm;

	/* The function. */
	struct function *function;
	struct scope *function_scope;
	value_ref guard;
	value_ref carry;   /* 0: not made yet */
	bool names_labels; /* an unknown name in an operand is a label to come */
	struct fixup *fixups;
	size_t fixup_count, fixup_room;
	struct statement statement;
};

void compile_fail(struct compiler *c, int status, uint32_t line, const char *format, ...)
	__attribute__((noreturn, format(printf, 4, 5)));
/* Zeroed memory that lives as long as the module. */
void *compile_alloc(struct compiler *c, size_t size);
/* The same until the end of the function (flow.c). */
void *compile_scratch(struct compiler *c, size_t size);
/* Grows an array to hold count + 1 (arena memory: the old one is left there). */
void *compile_grow(struct compiler *c, void *array, size_t count, size_t *room, size_t unit);

/* --- tokens (parse.c) */
void token_advance(struct compiler *c);
bool token_punct(const struct compiler *c, char punct);
bool token_accept(struct compiler *c, char punct);
void token_expect(struct compiler *c, char punct);
/* .word */
bool token_accept_dot(struct compiler *c, const char *word);
void token_fail(struct compiler *c, const char *wanted) __attribute__((noreturn));
/* A constant expression; wraps at 64 bits. */
uint64_t parse_expression(struct compiler *c);

/* --- symbols (symbols.c) */
void scope_push(struct compiler *c);
void scope_pop(struct compiler *c);
struct symbol *scope_find(const struct scope *scope, const char *name, size_t length);
/* In the scope and those around it; ranges of registers give the register. NULL: none. */
struct symbol *symbol_find(struct compiler *c, const char *name, size_t length);
/* Fails when the name is taken in this very scope. */
struct symbol *symbol_add(struct compiler *c, struct scope *scope, const struct token *name,
			  enum symbol_kind kind);
/* A new register of the function. */
value_ref register_make(struct compiler *c, enum type type);
value_ref constant_make(struct compiler *c, uint64_t bits, unsigned size);
/* A constant that becomes an address when the module is bound. */
value_ref constant_address(struct compiler *c, const struct symbol *symbol, int64_t addend,
			   unsigned size);
void function_refer(struct compiler *c, void *target, bool function, bool taken);

/* --- parsing */
void parse_module(struct compiler *c);
/* parse_variable.c: `.global .align 4 .b8 name[16] = {...}` and so on, from the state space on. */
enum link_kind {
	LINK_NONE,
	LINK_EXTERN,
	LINK_VISIBLE,
	LINK_WEAK,
	LINK_COMMON,
};
bool parse_is_variable_space(const struct compiler *c);
void parse_variable(struct compiler *c, enum link_kind link);
/* A parameter's or variable's `.align N .type name[size]` after its space. */
struct declaration {
	struct token name; /* length 0: `_` */
	enum type type;
	uint32_t align;
	uint64_t elements, size; /* bytes */
	uint32_t element;        /* bytes of an array's element, of a vector's; 0: no array */
	bool flexible;           /* name[] */
};
void parse_declaration(struct compiler *c, struct declaration *ret);
/* parse_function.c: from .entry or .func on. */
void parse_function(struct compiler *c, enum link_kind link);
/* parse_body.c: the token after `{`, up to and with the matching `}`. */
void parse_body(struct compiler *c);
void parse_operand(struct compiler *c, struct operand *ret);
void parse_skip_line(struct compiler *c);

/* --- lowering */
/* Index of the special register, -1: none. */
int special_find(const char *text, size_t length);
/* Whether there is such an instruction. */
bool lower_knows(const struct token *name);
/* Lowers c->statement, whose name is known; operands are parsed by the instruction's own rule
 * (call) or generally. */
void lower_statement(struct compiler *c);
/* A label stands here. */
void flow_label(struct compiler *c);
/* After the body: finds targets, joins and register pressure, and shrinks the code (flow.c). */
void flow_finish(struct compiler *c);
/* Links and lays out the whole module (link.c). */
void link_module(struct compiler *c);
