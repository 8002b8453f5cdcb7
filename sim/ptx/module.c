/* The facts that a compiled module tells and takes: kernels, variables, addresses. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "ptx/code.h"

void ptx_module_free(struct ptx_module *module)
{
	if (!module)
		return;
	/* Until the end of compiling, the constants lie in the arena and have room to grow. */
	if (module->constants.room == 0)
		free(module->constants.bytes);
	arena_free(&module->arena);
	free(module);
}

size_t ptx_module_kernel_count(const struct ptx_module *module)
{
	return module->kernel_count;
}

const struct ptx_kernel_info *ptx_module_kernel(const struct ptx_module *module, size_t index)
{
	return &module->kernels[index]->info;
}

int ptx_module_kernel_find(const struct ptx_module *module, const char *name)
{
	for (size_t i = 0; i < module->kernel_count; i++) {
		if (strcmp(module->kernels[i]->name, name) == 0)
			return (int)i;
	}
	return -ENOENT;
}

size_t ptx_module_variable_count(const struct ptx_module *module)
{
	return module->placed_count;
}

const struct ptx_variable_info *ptx_module_variable(const struct ptx_module *module, size_t index)
{
	return &module->placed_info[index];
}

int ptx_module_variable_find(const struct ptx_module *module, const char *name)
{
	int found = -ENOENT;

	for (size_t i = 0; i < module->placed_count; i++) {
		if (strcmp(module->placed[i]->name, name) != 0)
			continue;
		if (module->placed[i]->visible)
			return (int)i;
		found = (int)i;
	}
	return found;
}

static uint64_t relocated(const struct relocation *relocation)
{
	const struct variable *variable;

	if (relocation->function) {
		const struct function *function = relocation->target;

		return PTX_WINDOW_CODE + 16 * (uint64_t)function->definition->number +
		       (uint64_t)relocation->addend;
	}
	variable = ((const struct variable *)relocation->target)->definition;
	return variable->address + (uint64_t)relocation->addend +
	       (relocation->generic && variable->space == VARIABLE_SHARED ? PTX_WINDOW_SHARED : 0);
}

int ptx_module_bind(struct ptx_module *module, const uint64_t *addresses, size_t count)
{
	if (count != module->placed_count || module->bound)
		return -EINVAL;
	for (size_t i = 0; i < count; i++)
		module->placed[i]->address = addresses[i];
	for (size_t i = 0; i < module->relocation_count; i++) {
		const struct relocation *relocation = &module->relocations[i];
		uint64_t value = relocated(relocation);

		for (size_t lane = 0; lane < WARP_LANES; lane++)
			memcpy(module->constants.bytes + relocation->place +
				       lane * relocation->size,
			       &value, relocation->size);
	}
	module->bound = true;
	return 0;
}

void ptx_module_variable_init(const struct ptx_module *module, size_t index, void *bytes)
{
	const struct variable *variable = module->placed[index];
	unsigned char *to = bytes;

	if (variable->init_size > 0)
		memcpy(to, variable->init, variable->init_size);
	for (size_t i = 0; i < variable->relocation_count; i++) {
		const struct relocation *relocation = &variable->relocations[i];
		uint64_t value = relocated(relocation) >> relocation->shift;

		memcpy(to + relocation->place, &value, relocation->size);
	}
}
