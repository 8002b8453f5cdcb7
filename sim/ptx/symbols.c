/* Names, registers and constants of a compilation. */
#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/macros.h"
#include "ptx/compile.h"

/* More digits than any range has registers. */
#define RANGE_DIGITS_MAX 9

static unsigned name_bucket(const char *name, size_t length)
{
	uint32_t hash = 2166136261u;

	for (size_t i = 0; i < length; i++)
		hash = (hash ^ (unsigned char)name[i]) * 16777619u;
	return (hash ^ hash >> 16) % SCOPE_BUCKETS;
}

void scope_push(struct compiler *c)
{
	struct scope *scope = compile_alloc(c, sizeof(*scope));

	scope->parent = c->scope;
	scope->depth = c->scope ? c->scope->depth + 1 : 0;
	if (scope->depth > SCOPE_DEPTH_MAX)
		compile_fail(c, -EINVAL, c->token.line, "blocks are nested too deeply");
	c->scope = scope;
}

/* A label that this scope only names belongs to one around it. */
static void label_hand_up(struct compiler *c, struct symbol *label)
{
	struct token name = {.text = label->name, .length = label->length, .line = label->line};
	struct symbol *outer = symbol_find(c, label->name, label->length);

	if (!outer || outer->kind != SYMBOL_LABEL)
		outer = symbol_add(c, c->scope, &name, SYMBOL_LABEL);
	label->alias = outer;
}

void scope_pop(struct compiler *c)
{
	struct scope *scope = c->scope;

	c->scope = scope->parent;
	if (scope == c->function_scope)
		return;
	for (size_t i = 0; i < SCOPE_BUCKETS; i++) {
		for (struct symbol *s = scope->buckets[i]; s; s = s->next) {
			if (s->kind == SYMBOL_LABEL && s->index == UINT32_MAX && !s->alias)
				label_hand_up(c, s);
		}
	}
}

struct symbol *scope_find(const struct scope *scope, const char *name, size_t length)
{
	struct symbol *symbol = scope->buckets[name_bucket(name, length)];

	for (; symbol; symbol = symbol->next) {
		if (symbol->length == length && memcmp(symbol->name, name, length) == 0 &&
		    symbol->kind != SYMBOL_REGISTER_RANGE)
			return symbol;
	}
	return NULL;
}

static struct symbol *range_find(const struct scope *scope, const char *name, size_t length)
{
	struct symbol *symbol = scope->buckets[name_bucket(name, length)];

	for (; symbol; symbol = symbol->next) {
		if (symbol->kind == SYMBOL_REGISTER_RANGE && symbol->length == length &&
		    memcmp(symbol->name, name, length) == 0)
			return symbol;
	}
	return NULL;
}

/* The register of a range: %r12 of %r<20>. */
static struct symbol *range_register(struct compiler *c, struct scope *scope, const char *name,
				     size_t length)
{
	uint64_t number = 0, weight = 1;

	for (size_t cut = length; cut-- > 1 && length - cut <= RANGE_DIGITS_MAX;) {
		struct token token = {.text = name, .length = length, .line = c->token.line};
		struct symbol *range, *made;

		if (!isdigit((unsigned char)name[cut]))
			break;
		number += weight * (uint64_t)(name[cut] - '0');
		weight *= 10;
		if (name[cut] == '0' && length - cut > 1)
			continue;
		range = range_find(scope, name, cut);
		if (!range || number >= range->size)
			continue;
		made = symbol_add(c, scope, &token, SYMBOL_REGISTER);
		made->type = range->type;
		made->place = register_make(c, range->type);
		return made;
	}
	return NULL;
}

struct symbol *symbol_find(struct compiler *c, const char *name, size_t length)
{
	for (struct scope *scope = c->scope; scope; scope = scope->parent) {
		struct symbol *symbol = scope_find(scope, name, length);

		if (!symbol && c->function)
			symbol = range_register(c, scope, name, length);
		if (symbol)
			return symbol;
	}
	return NULL;
}

struct symbol *symbol_add(struct compiler *c, struct scope *scope, const struct token *name,
			  enum symbol_kind kind)
{
	unsigned bucket = name_bucket(name->text, name->length);
	struct symbol *symbol;

	if (kind == SYMBOL_REGISTER_RANGE ? range_find(scope, name->text, name->length)
					  : scope_find(scope, name->text, name->length))
		compile_fail(c, -EINVAL, name->line, "'%.*s' is declared twice", (int)name->length,
			     name->text);
	symbol = compile_alloc(c, sizeof(*symbol));
	*symbol = (struct symbol){.next = scope->buckets[bucket],
				  .name = name->text,
				  .length = name->length,
				  .kind = kind,
				  .index = UINT32_MAX,
				  .line = name->line};
	scope->buckets[bucket] = symbol;
	return symbol;
}

value_ref register_make(struct compiler *c, enum type type)
{
	struct function *function = c->function;
	uint32_t bytes = type == TYPE_PRED ? 4 : type_size(type) * WARP_LANES;
	uint32_t place = ALIGN_UP(function->register_bytes, MIN(bytes, 64u));

	if (place > FRAME_BYTES_MAX - bytes)
		compile_fail(c, -EINVAL, c->token.line, "'%s' has too many registers",
			     function->name);
	function->register_bytes = place + bytes;
	return place;
}

static value_ref constant_append(struct compiler *c, uint64_t bits, unsigned size)
{
	struct buffer *buffer = &c->module->constants;
	size_t bytes = size == 0 ? 4 : (size_t)size * WARP_LANES;
	size_t place = ALIGN_UP(buffer->size, MIN(bytes, (size_t)64));

	if (place + bytes > (1u << 30))
		compile_fail(c, -EINVAL, c->token.line, "too many constants");
	if (place + bytes > buffer->room)
		buffer->bytes = compile_grow(c, buffer->bytes, place + bytes, &buffer->room, 1);
	buffer->size = place + bytes;
	if (size == 0)
		memcpy(buffer->bytes + place, &bits, 4);
	for (size_t i = 0; size > 0 && i < WARP_LANES; i++)
		memcpy(buffer->bytes + place + i * size, &bits, size);
	return (value_ref)place | VALUE_CONSTANT;
}

value_ref constant_make(struct compiler *c, uint64_t bits, unsigned size)
{
	struct constant *constant;
	uint64_t hash;
	unsigned bucket;

	if (size > 0 && size < 8)
		bits &= (1ULL << (8 * size)) - 1;
	hash = (bits + size) * 0x9e3779b97f4a7c15ULL;
	bucket = (unsigned)(hash >> 40) % CONSTANT_BUCKETS;
	for (constant = c->constants[bucket]; constant; constant = constant->next) {
		if (constant->bits == bits && constant->size == size)
			return constant->place;
	}
	constant = compile_alloc(c, sizeof(*constant));
	*constant = (struct constant){.next = c->constants[bucket],
				      .bits = bits,
				      .place = constant_append(c, bits, size),
				      .size = size};
	c->constants[bucket] = constant;
	return constant->place;
}

value_ref constant_address(struct compiler *c, const struct symbol *symbol, int64_t addend,
			   unsigned size)
{
	struct ptx_module *module = c->module;
	bool function = symbol->kind == SYMBOL_FUNCTION;
	value_ref ref = constant_append(c, 0, size);
	struct relocation relocation = {
		.place = ref & ~VALUE_CONSTANT,
		.size = (uint8_t)size,
		.function = function,
		.target = function ? (void *)symbol->function : (void *)symbol->variable,
		.addend = addend,
	};

	module->relocations = compile_grow(c, module->relocations, module->relocation_count,
					   &module->relocation_room, sizeof(*module->relocations));
	module->relocations[module->relocation_count++] = relocation;
	function_refer(c, relocation.target, function, true);
	return ref;
}

void function_refer(struct compiler *c, void *target, bool function, bool taken)
{
	struct reference *reference;

	for (reference = c->function->references; reference; reference = reference->next) {
		if (reference->target == target && reference->taken == taken)
			return;
	}
	reference = compile_alloc(c, sizeof(*reference));
	*reference = (struct reference){.next = c->function->references,
					.target = target,
					.function = function,
					.taken = taken};
	c->function->references = reference;
}
