/* Attributes of streams: kept and told; none changes what the simulated GPU does. */
#include "cuda/context.h"
#include "cuda/stream.h"

CUresult cuStreamGetAttribute(CUstream handle, CUstreamAttrID id, CUstreamAttrValue *value)
{
	CUstream stream;

	API_BEGIN_CONTEXT(ctx);
	CUresult result = stream_resolve(ctx, handle, &stream);
	if (result != CUDA_SUCCESS || !value)
		return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
	switch (id) {
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		value->accessPolicyWindow = stream->window;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
		value->syncPolicy = stream->sync_policy ? stream->sync_policy : CU_SYNC_POLICY_AUTO;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
		value->priority = stream->priority;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
		value->memSyncDomainMap = (CUlaunchMemSyncDomainMap){0, 1};
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
		value->memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult cuStreamSetAttribute(CUstream handle, CUstreamAttrID id, const CUstreamAttrValue *value)
{
	CUstream stream;

	API_BEGIN_CONTEXT(ctx);
	CUresult result = stream_resolve(ctx, handle, &stream);
	if (result != CUDA_SUCCESS || !value)
		return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
	switch (id) {
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		stream->window = value->accessPolicyWindow;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
		stream->sync_policy = value->syncPolicy;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
		stream->priority = value->priority;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult cuStreamCopyAttributes(CUstream to_handle, CUstream from_handle)
{
	CUstream to, from;

	API_BEGIN_CONTEXT(ctx);
	CUresult result = stream_resolve(ctx, to_handle, &to);
	if (result == CUDA_SUCCESS)
		result = stream_resolve(ctx, from_handle, &from);
	if (result != CUDA_SUCCESS)
		return result;
	to->window = from->window;
	to->sync_policy = from->sync_policy;
	return CUDA_SUCCESS;
}
