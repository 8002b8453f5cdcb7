/* Linear memory between processes: a handle is a token of the host's and a place in what it names.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/context.h"
#include "cuda/foreign.h"
#include "cuda/memory.h"
#include "cuda/parts.h"

struct ipc_handle {
	uint8_t token[CLIENT_TOKEN_SIZE];
	uint64_t offset, size;
	int32_t pid; /* the exporter's, which may not open it */
	uint32_t spare;
	uint64_t spare2;
};
_Static_assert(sizeof(struct ipc_handle) == sizeof(CUipcMemHandle), "fills the handle");

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
	struct range range;

	API_BEGIN_CONTEXT(ctx);
	struct ipc_handle ipc = {.pid = client_pid(driver.client)};

	if (!handle || !range_find(address, &range) || range.kind != RANGE_LINEAR)
		return CUDA_ERROR_INVALID_VALUE;
	const struct block *block = linear_block(&range);
	const struct memory_note note = {.offset = block->offset, .size = block->size};
	CUresult result = memory_export_token(block->id, block_fd(block), &note, ipc.token);
	if (result != CUDA_SUCCESS)
		return result;
	ipc.offset = range.start - block_address(block);
	ipc.size = range.size;
	memcpy(handle, &ipc, sizeof(*handle));
	return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags)
{
	struct client_import import;
	struct ipc_handle ipc;

	API_BEGIN_CONTEXT(ctx);
	if (!address || flags & ~(unsigned int)CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&ipc, &handle, sizeof(ipc));
	if (ipc.pid == client_pid(driver.client))
		return CUDA_ERROR_INVALID_CONTEXT;
	int status = client_memory_import(driver.client, ipc.token, &import);
	if (status < 0)
		return CUDA_ERROR_INVALID_VALUE;
	struct foreign *foreign = malloc(sizeof(*foreign));
	if (!foreign) {
		client_memory_free(driver.client, import.id);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	struct device *device = foreign_device(import.device);
	CUresult result = foreign_map(&import, true, foreign);
	if (result != CUDA_SUCCESS) {
		free(foreign);
		return result;
	}
	struct range range = {
		.start = foreign->window + ipc.offset,
		.size = ipc.size,
		.host = foreign->host + ipc.offset,
		.kind = RANGE_IPC,
		.readable = true,
		.writable = true,
		.ctx = ctx,
		.device = device ? device : ctx->device,
		.owner = foreign,
	};
	if (!device || !range_add(&range)) {
		memory_release(&range);
		return device ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_DEVICE;
	}
	*address = range.start;
	return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
	struct range range;

	API_BEGIN_CONTEXT(ctx);
	if (!range_find(address, &range) || range.kind != RANGE_IPC || range.start != address)
		return CUDA_ERROR_INVALID_VALUE;
	context_synchronize(ctx);
	if (!range_remove(address, RANGE_IPC, &range))
		return CUDA_ERROR_INVALID_VALUE;
	memory_release(&range);
	return CUDA_SUCCESS;
}
