/* Kernels and device functions: their names, parameters and directives. */
#include <errno.h>
#include <string.h>

#include "base/macros.h"
#include "ptx/compile.h"

#define PARAMS_MAX 4096
#define PARAM_BYTES_MAX (1u << 20)
#define THREADS_MAX 1024

/* The contents of a list of parameters; entry: ptx_param offsets, else slots. */
struct params {
	struct slot *slots;
	struct token *names;
	enum type *types;
	uint32_t *elements; /* as of symbols */
	uint32_t count;
	size_t slot_room, name_room, type_room, element_room;
	uint32_t bytes; /* kernels: of the parameter buffer */
};

static void params_add(struct compiler *c, struct params *params, struct slot slot,
		       const struct declaration *declaration)
{
	if (params->count == PARAMS_MAX)
		compile_fail(c, -EINVAL, c->token.line, "too many parameters");
	params->slots = compile_grow(c, params->slots, params->count, &params->slot_room,
				     sizeof(*params->slots));
	params->names = compile_grow(c, params->names, params->count, &params->name_room,
				     sizeof(*params->names));
	params->types = compile_grow(c, params->types, params->count, &params->type_room,
				     sizeof(*params->types));
	params->elements = compile_grow(c, params->elements, params->count, &params->element_room,
					sizeof(*params->elements));
	params->slots[params->count] = slot;
	params->names[params->count] = declaration->name;
	params->types[params->count] = declaration->type;
	params->elements[params->count] = declaration->element;
	params->count++;
}

static void parse_one_param(struct compiler *c, struct params *params, bool entry)
{
	struct declaration declaration;
	struct slot slot = {.in_register =
				    c->token.kind == TOKEN_DOT && token_is(&c->token, "reg")};

	if (!slot.in_register && !(c->token.kind == TOKEN_DOT && token_is(&c->token, "param")))
		token_fail(c, ".param");
	if (slot.in_register && entry)
		token_fail(c, ".param");
	token_advance(c);
	parse_declaration(c, &declaration);
	if (declaration.size > PARAM_BYTES_MAX || params->bytes > PARAM_BYTES_MAX)
		compile_fail(c, -EINVAL, c->token.line, "the parameters are too large");
	slot.size = (uint32_t)declaration.size;
	if (slot.in_register && (slot.size < 2 || slot.size != type_size(declaration.type)))
		compile_fail(c, -EINVAL, c->token.line, "unsupported register parameter");
	slot.place = ALIGN_UP(params->bytes, declaration.align);
	params->bytes = slot.place + slot.size;
	params_add(c, params, slot, &declaration);
}

/* ( .param .b32 a, ... ), or nothing. */
static void parse_params(struct compiler *c, struct params *params, bool entry)
{
	if (!token_accept(c, '('))
		return;
	while (!token_punct(c, ')')) {
		parse_one_param(c, params, entry);
		if (!token_punct(c, ')'))
			token_expect(c, ',');
	}
	token_expect(c, ')');
}

static bool slots_match(const struct slot *a, uint32_t a_count, const struct params *b)
{
	if (a_count != b->count)
		return false;
	for (uint32_t i = 0; i < a_count; i++) {
		if (a[i].size != b->slots[i].size || a[i].in_register != b->slots[i].in_register)
			return false;
	}
	return true;
}

static enum intrinsic intrinsic_find(const char *name)
{
	static const char *const names[] = {
		[INTRINSIC_VPRINTF] = "vprintf",
		[INTRINSIC_MALLOC] = "malloc",
		[INTRINSIC_FREE] = "free",
		[INTRINSIC_ASSERTFAIL] = "__assertfail",
	};

	for (size_t i = INTRINSIC_NONE + 1; i < ARRAY_SIZE(names); i++) {
		if (strcmp(name, names[i]) == 0)
			return (enum intrinsic)i;
	}
	return INTRINSIC_NONE;
}

static struct function *function_make(struct compiler *c, const struct token *name, bool entry)
{
	struct symbol *symbol = symbol_add(c, c->scope, name, SYMBOL_FUNCTION);
	struct function *function = compile_alloc(c, sizeof(*function));

	function->name = arena_copy(&c->module->arena, name->text, name->length);
	if (!function->name)
		compile_fail(c, -ENOMEM, name->line, "out of memory");
	function->is_entry = entry;
	function->number = ++c->module->function_count;
	function->definition = function;
	function->source = c->source;
	function->line = name->line;
	function->intrinsic = intrinsic_find(function->name);
	function->register_bytes = FRAME_SINK_BYTES;
	function->next = c->module->functions;
	c->module->functions = function;
	symbol->function = function;
	return function;
}

static struct function *function_declare(struct compiler *c, const struct token *name, bool entry,
					 const struct params *returns, const struct params *params)
{
	struct symbol *symbol = scope_find(c->scope, name->text, name->length);
	struct function *function;

	if (!symbol) {
		function = function_make(c, name, entry);
		function->params = params->slots;
		function->param_count = params->count;
		function->returns = returns->slots;
		function->return_count = returns->count;
		return function;
	}
	function = symbol->function;
	if (symbol->kind != SYMBOL_FUNCTION || function->is_entry != entry ||
	    !slots_match(function->params, function->param_count, params) ||
	    !slots_match(function->returns, function->return_count, returns))
		compile_fail(c, -EINVAL, name->line, "'%s' is declared in two ways",
			     function           ? function->name
			     : symbol->variable ? symbol->variable->name
						: "?");
	return function;
}

static void parse_dims(struct compiler *c, uint32_t dims[3])
{
	uint64_t product = 1;

	dims[0] = dims[1] = dims[2] = 1;
	for (unsigned i = 0; i < 3; i++) {
		uint64_t value = parse_expression(c);

		if (value == 0 || value > 1u << 16)
			compile_fail(c, -EINVAL, c->token.line, "bad dimensions");
		dims[i] = (uint32_t)value;
		product *= value;
		if (!token_accept(c, ','))
			break;
	}
	if (product > 1u << 16)
		compile_fail(c, -EINVAL, c->token.line, "bad dimensions");
}

/* .maxntid 256, 1, 1 and its like, between the parameters and the body. */
static void parse_tuning(struct compiler *c, struct ptx_kernel_info *info)
{
	static const char *const counted[] = {"minnctapersm", "maxnctapersm",
					      "maxnreg",      "maxclusterrank",
					      "abi_preserve", "abi_preserve_control"};
	static const char *const plain[] = {"noreturn", "explicitcluster", "blocksareclusters"};

	while (c->token.kind == TOKEN_DOT) {
		bool known = false;

		if (token_accept_dot(c, "maxntid")) {
			parse_dims(c, info->maxntid);
			continue;
		}
		if (token_accept_dot(c, "reqntid")) {
			parse_dims(c, info->reqntid);
			continue;
		}
		if (token_accept_dot(c, "reqnctapercluster")) {
			parse_dims(c, info->reqnctapercluster);
			continue;
		}
		if (token_accept_dot(c, "pragma")) {
			parse_skip_line(c);
			continue;
		}
		for (size_t i = 0; i < ARRAY_SIZE(counted) && !known; i++) {
			known = token_accept_dot(c, counted[i]);
			if (known)
				parse_expression(c);
		}
		for (size_t i = 0; i < ARRAY_SIZE(plain) && !known; i++)
			known = token_accept_dot(c, plain[i]);
		if (!known)
			token_fail(c, "a directive of functions");
	}
}

static void params_name(struct compiler *c, const struct params *params, struct slot *slots)
{
	for (uint32_t i = 0; i < params->count; i++) {
		struct slot *slot = &slots[i];
		struct symbol *symbol;
		enum symbol_kind kind = c->function->is_entry ? SYMBOL_KERNEL_PARAM
					: slot->in_register   ? SYMBOL_REGISTER
							      : SYMBOL_FRAME;

		if (slot->in_register) {
			slot->place = register_make(c, params->types[i]);
		} else if (!c->function->is_entry) {
			slot->place = ALIGN_UP(c->function->local_bytes, 16u);
			c->function->local_bytes = slot->place + slot->size;
		}
		if (params->names[i].length == 0)
			continue;
		symbol = symbol_add(c, c->scope, &params->names[i], kind);
		symbol->type = params->types[i];
		symbol->element = params->elements[i];
		symbol->place = slot->place;
		symbol->size = slot->size;
	}
}

static uint32_t dims_product(const uint32_t dims[3])
{
	return dims[0] * dims[1] * dims[2];
}

static void kernel_describe(struct compiler *c, struct function *function,
			    const struct params *params)
{
	struct ptx_kernel_info *info = &function->info;
	struct ptx_param *list = compile_alloc(c, sizeof(*list) * params->count);

	for (uint32_t i = 0; i < params->count; i++)
		list[i] = (struct ptx_param){params->slots[i].place, params->slots[i].size};
	info->name = function->name;
	info->params = list;
	info->param_count = params->count;
	info->param_bytes = params->bytes;
	info->ptx_version = c->ptx_version;
	info->sm = c->sm;
	info->max_threads = THREADS_MAX;
	if (info->maxntid[0])
		info->max_threads = MIN(dims_product(info->maxntid), (uint32_t)THREADS_MAX);
	if (info->reqntid[0])
		info->max_threads = MIN(dims_product(info->reqntid), (uint32_t)THREADS_MAX);
}

static void function_define(struct compiler *c, struct function *function,
			    const struct params *returns, const struct params *params)
{
	if (function->is_defined)
		compile_fail(c, -EINVAL, c->token.line, "'%s' is defined twice", function->name);
	function->is_defined = true;
	function->is_extern = false;
	function->source = c->source;
	c->function = function;
	scope_push(c);
	c->function_scope = c->scope;
	if (function->is_entry)
		kernel_describe(c, function, params);
	params_name(c, params, function->params);
	params_name(c, returns, function->returns);
	token_expect(c, '{');
	parse_body(c);
	flow_finish(c);
	scope_pop(c);
	c->function_scope = NULL;
	c->function = NULL;
}

void parse_function(struct compiler *c, enum link_kind link)
{
	bool entry = token_is(&c->token, "entry");
	struct ptx_kernel_info tuning = {0};
	struct params returns = {0}, params = {0};
	struct function *function;
	struct token name;

	token_advance(c);
	if (!entry) {
		while (token_accept_dot(c, "attribute"))
			parse_skip_line(c);
		parse_params(c, &returns, false);
	}
	if (c->token.kind != TOKEN_NAME)
		token_fail(c, "a name");
	name = c->token;
	token_advance(c);
	parse_params(c, &params, entry);
	function = function_declare(c, &name, entry, &returns, &params);
	function->visible = function->visible || entry || link == LINK_VISIBLE || link == LINK_WEAK;
	function->weak = function->weak || link == LINK_WEAK;
	parse_tuning(c, &tuning);
	if (token_accept(c, ';')) {
		function->is_extern = !function->is_defined;
		return;
	}
	function->info = tuning;
	function_define(c, function, &returns, &params);
}
