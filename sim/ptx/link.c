/* Links the sources of a module: externs to definitions, kernels to what they reach, shared memory
 * to offsets. */
#include <errno.h>
#include <string.h>

#include "base/macros.h"
#include "ptx/compile.h"

/* Calls nested deeper than this count as recursion: they take the launch's stack. */
#define CALL_DEPTH_MAX 256
#define FRAME_ALIGN 16u
#define SHARED_BYTES_MAX (1ULL << 24)

/* --- symbols of several sources */

static struct function *find_function(const struct compiler *c, const struct function *wanted)
{
	struct function *weak = NULL;

	for (struct function *f = c->module->functions; f; f = f->next) {
		bool defined = f->is_defined || f->definition != f;

		if (f == wanted || !defined || !f->visible || strcmp(f->name, wanted->name) != 0)
			continue;
		if (!f->weak)
			return f;
		weak = f;
	}
	return weak;
}

static bool same_slots(const struct slot *a, const struct slot *b, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		if (a[i].size != b[i].size)
			return false;
	}
	return true;
}

static void link_function(struct compiler *c, struct function *f, bool taken)
{
	struct function *found;

	if (f->is_defined || f->definition != f)
		return;
	found = find_function(c, f);
	if (!found) {
		if ((f->called || taken) && !f->intrinsic)
			compile_fail(c, -ENOENT, f->line, "unresolved extern function '%s'",
				     f->name);
		return;
	}
	if (found->param_count != f->param_count || found->return_count != f->return_count ||
	    !same_slots(found->params, f->params, f->param_count) ||
	    !same_slots(found->returns, f->returns, f->return_count))
		compile_fail(c, -EINVAL, f->line, "'%s' is declared in two ways", f->name);
	f->definition = found->definition;
}

static void check_duplicates(struct compiler *c)
{
	for (struct function *f = c->module->functions; f; f = f->next) {
		struct function *other;

		if (!f->is_defined || !f->visible)
			continue;
		other = find_function(c, f);
		if (!other)
			continue;
		if (!f->weak && !other->weak)
			compile_fail(c, -EEXIST, f->line, "'%s' is defined twice", f->name);
		if (f->weak && other->definition == other)
			f->definition = other;
	}
}

static struct variable *find_variable(const struct compiler *c, const struct variable *wanted)
{
	struct variable *weak = NULL;

	for (struct variable *v = c->module->variables; v; v = v->next) {
		if (v == wanted || v->is_extern || !v->visible || v->definition != v ||
		    v->space != wanted->space || strcmp(v->name, wanted->name) != 0)
			continue;
		if (!v->weak)
			return v;
		weak = v;
	}
	return weak;
}

static void link_variable(struct compiler *c, struct variable *v)
{
	struct variable *other;

	if (v->space == VARIABLE_SHARED && (v->is_extern || v->size == 0)) {
		v->is_extern = true; /* dynamic shared memory */
		return;
	}
	if (!v->is_extern && (!v->visible || c->source == 0))
		return;
	other = find_variable(c, v);
	if (v->is_extern && !other)
		compile_fail(c, -ENOENT, 0, "unresolved extern variable '%s'", v->name);
	if (!v->is_extern && other && !v->weak && !other->weak)
		compile_fail(c, -EEXIST, 0, "'%s' is defined twice", v->name);
	if (other && (v->is_extern || v->weak))
		v->definition = other;
}

/* --- the call graph */

static uint32_t frame_bytes(const struct function *f)
{
	return ALIGN_UP(MAX(f->local_bytes, FRAME_ALIGN), FRAME_ALIGN);
}

/* The deepest stack below and with f; a call back into a function that is being visited counts
 * nothing: its depth is the launch's stack. */
static uint32_t stack_bytes(struct function *f, unsigned depth)
{
	uint32_t deepest = 0;

	if (f->visit == 2)
		return f->stack_bytes;
	if (f->visit == 1 || depth > CALL_DEPTH_MAX)
		return 0;
	f->visit = 1;
	for (struct reference *r = f->references; r; r = r->next) {
		if (r->function) {
			struct function *callee = r->target;
			uint32_t bytes = stack_bytes(callee->definition, depth + 1);

			deepest = MAX(deepest, bytes);
		}
	}
	f->visit = 2;
	f->stack_bytes = MIN(frame_bytes(f) + deepest, 1u << 30);
	return f->stack_bytes;
}

static void reach_variable(struct function *kernel, struct variable *v)
{
	if (v->space != VARIABLE_SHARED)
		return;
	v = v->definition;
	if (v->user && v->user != kernel)
		v->shared_by_several = true;
	v->user = kernel;
}

/* Visits what the kernel reaches; `next_work` of the work list is kept in an array of functions. */
static void reach(struct compiler *c, struct function *kernel, struct function **work)
{
	size_t count = 1;

	work[0] = kernel;
	kernel->reached_by = kernel;
	while (count > 0) {
		struct function *f = work[--count];

		for (struct reference *r = f->references; r; r = r->next) {
			struct function *callee = r->target;

			if (!r->function) {
				reach_variable(kernel, r->target);
				continue;
			}
			callee = callee->definition;
			kernel->registers = MAX(kernel->registers, callee->registers);
			if (callee->reached_by == kernel)
				continue;
			callee->reached_by = kernel;
			work[count++] = callee;
		}
	}
}

/* --- shared memory */

static void place_shared(struct compiler *c, struct variable *v, uint32_t *end)
{
	uint64_t at = ALIGN_UP((uint64_t)*end, v->align);

	if (v->size > SHARED_BYTES_MAX || at + v->size > SHARED_BYTES_MAX)
		compile_fail(c, -EINVAL, 0, "too much shared memory: '%s'", v->name);
	v->address = at;
	*end = (uint32_t)(at + v->size);
}

/* Variables that several kernels reach come first and have one place; those of one kernel follow,
 * in each kernel from the same offset. */
static void lay_out_shared(struct compiler *c)
{
	struct ptx_module *module = c->module;
	uint32_t common = 0, align = FRAME_ALIGN, end = 0;

	for (struct variable *v = module->variables; v; v = v->next) {
		if (v->space == VARIABLE_SHARED && !v->is_extern && v->shared_by_several)
			place_shared(c, v, &common);
		if (v->space == VARIABLE_SHARED && v->is_extern)
			align = MAX(align, v->align);
	}
	for (size_t i = 0; i < module->kernel_count; i++)
		module->kernels[i]->shared_end = common;
	for (struct variable *v = module->variables; v; v = v->next) {
		if (v->space == VARIABLE_SHARED && !v->is_extern && !v->shared_by_several &&
		    v->user)
			place_shared(c, v, &v->user->shared_end);
	}
	for (size_t i = 0; i < module->kernel_count; i++) {
		module->kernels[i]->info.shared_bytes = module->kernels[i]->shared_end;
		end = MAX(end, module->kernels[i]->shared_end);
	}
	module->dynamic_shared = ALIGN_UP(end, align);
	for (struct variable *v = module->variables; v; v = v->next) {
		if (v->space == VARIABLE_SHARED && v->is_extern)
			v->address = module->dynamic_shared;
	}
}

/* --- the module's tables */

static void list_functions(struct compiler *c)
{
	struct ptx_module *module = c->module;
	size_t at;

	module->by_number =
		compile_alloc(c, ((size_t)module->function_count + 1) * sizeof(struct function *));
	for (struct function *f = module->functions; f; f = f->next) {
		module->by_number[f->number] = f;
		if (f->is_entry && f->is_defined && f->definition == f)
			module->kernel_count++;
	}
	module->kernels = compile_alloc(c, module->kernel_count * sizeof(struct function *));
	at = module->kernel_count;
	for (struct function *f = module->functions; f; f = f->next) {
		if (f->is_entry && f->is_defined && f->definition == f)
			module->kernels[--at] = f;
	}
}

static bool is_placed(const struct variable *v)
{
	return v->space != VARIABLE_SHARED && !v->is_extern && v->definition == v;
}

static void list_variables(struct compiler *c)
{
	struct ptx_module *module = c->module;
	size_t at;

	for (struct variable *v = module->variables; v; v = v->next)
		module->placed_count += is_placed(v);
	module->placed = compile_alloc(c, module->placed_count * sizeof(struct variable *));
	module->placed_info = compile_alloc(c, module->placed_count * sizeof(*module->placed_info));
	at = module->placed_count;
	for (struct variable *v = module->variables; v; v = v->next) {
		if (!is_placed(v))
			continue;
		if (v->space == VARIABLE_CONST)
			module->const_bytes += (uint32_t)MIN(v->size, 1ULL << 24);
		v->size = MAX(v->size, 1ULL);
		module->placed[--at] = v;
		module->placed_info[at] = (struct ptx_variable_info){
			.name = v->name,
			.space = v->space == VARIABLE_CONST ? PTX_SPACE_CONST : PTX_SPACE_GLOBAL,
			.size = v->size,
			.align = v->align,
			.visible = v->visible,
		};
	}
}

static void describe_kernels(struct compiler *c)
{
	struct ptx_module *module = c->module;
	struct function **work =
		compile_alloc(c, ((size_t)module->function_count + 1) * sizeof(struct function *));

	for (size_t i = 0; i < module->kernel_count; i++) {
		struct function *kernel = module->kernels[i];
		uint32_t stack = stack_bytes(kernel, 0);

		reach(c, kernel, work);
		kernel->info.local_bytes =
			stack == frame_bytes(kernel) ? kernel->local_bytes : stack;
		kernel->info.registers = kernel->registers;
		kernel->info.const_bytes = module->const_bytes;
	}
}

void link_module(struct compiler *c)
{
	struct ptx_module *module = c->module;

	if (c->source > 0) /* within one source a name is declared once */
		check_duplicates(c);
	for (struct function *f = module->functions; f; f = f->next)
		link_function(c, f, false);
	for (struct function *f = module->functions; f; f = f->next) {
		for (struct reference *r = f->references; r; r = r->next) {
			if (r->function && r->taken)
				link_function(c, r->target, true);
		}
	}
	for (struct variable *v = module->variables; v; v = v->next)
		link_variable(c, v);
	for (size_t i = 0; i < module->code_count; i++) {
		if (module->code[i].op == OP_call)
			module->code[i].callee = module->code[i].callee->definition;
	}
	list_functions(c);
	list_variables(c);
	describe_kernels(c);
	lay_out_shared(c);
}
