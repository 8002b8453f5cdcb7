/* In the interpreter's place, in a build without it: no module can be made. */
#include <errno.h>
#include <stdio.h>

#include "ptx/ptx.h"

int ptx_module_compile(const struct ptx_source *sources, size_t source_count,
		       const struct ptx_options *options, char *log, size_t log_size,
		       struct ptx_module **ret_module)
{
	if (log_size)
		snprintf(log, log_size, "this build has no interpreter for PTX\n");
	return -EINVAL;
}

/* What follows needs a module, and there is none. */
void ptx_module_free(struct ptx_module *module)
{
}

size_t ptx_module_kernel_count(const struct ptx_module *module)
{
	return 0;
}

const struct ptx_kernel_info *ptx_module_kernel(const struct ptx_module *module, size_t index)
{
	return NULL;
}

int ptx_module_kernel_find(const struct ptx_module *module, const char *name)
{
	return -ENOENT;
}

size_t ptx_module_variable_count(const struct ptx_module *module)
{
	return 0;
}

const struct ptx_variable_info *ptx_module_variable(const struct ptx_module *module, size_t index)
{
	return NULL;
}

int ptx_module_variable_find(const struct ptx_module *module, const char *name)
{
	return -ENOENT;
}

int ptx_module_bind(struct ptx_module *module, const uint64_t *addresses, size_t count)
{
	return -EINVAL;
}

void ptx_module_variable_init(const struct ptx_module *module, size_t index, void *bytes)
{
}

int ptx_launch_run(const struct ptx_launch *launch, struct ptx_result *ret_result)
{
	return -EINVAL;
}
