#include "cuda/user_object.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "cuda/graph.h"
#include "cuda/handle.h"

struct CUuserObject_st {
	_Atomic unsigned int refs;
	CUhostFn destroy;
	void *data;
};

void user_object_release(CUuserObject object, unsigned int count)
{
	if (atomic_fetch_sub(&object->refs, count) != count)
		return;
	handle_remove(object);
	object->destroy(object->data);
	free(object);
}

bool user_objects_share(const struct graph_user_object *from, size_t count,
			struct graph_user_object **to, size_t *to_count)
{
	if (!count)
		return true;
	struct graph_user_object *grown = realloc(*to, (*to_count + count) * sizeof(*grown));
	if (!grown)
		return false;
	*to = grown;
	for (size_t i = 0; i < count; i++) {
		atomic_fetch_add(&from[i].object->refs, 1);
		grown[(*to_count)++] = (struct graph_user_object){from[i].object, 1};
	}
	return true;
}

void user_objects_release(struct graph_user_object *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		user_object_release(list[i].object, list[i].refs);
	free(list);
}

CUresult cuUserObjectCreate(CUuserObject *object, void *data, CUhostFn destroy, unsigned int refs,
			    unsigned int flags)
{
	API_BEGIN();
	if (!object || !destroy || !refs || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
		return CUDA_ERROR_INVALID_VALUE;
	CUuserObject made = calloc(1, sizeof(*made));
	if (!made || !handle_add(made, HANDLE_USER_OBJECT)) {
		free(made);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	made->refs = refs;
	made->destroy = destroy;
	made->data = data;
	*object = made;
	return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned int count)
{
	API_BEGIN();
	if (!handle_is(object, HANDLE_USER_OBJECT) || !count)
		return CUDA_ERROR_INVALID_VALUE;
	atomic_fetch_add(&object->refs, count);
	return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned int count)
{
	API_BEGIN();
	if (!handle_is(object, HANDLE_USER_OBJECT) || !count || object->refs < count)
		return CUDA_ERROR_INVALID_VALUE;
	user_object_release(object, count);
	return CUDA_SUCCESS;
}

static struct graph_user_object *graph_object(CUgraph graph, CUuserObject object)
{
	for (size_t i = 0; i < graph->object_count; i++)
		if (graph->objects[i].object == object)
			return &graph->objects[i];
	return NULL;
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count,
				 unsigned int flags)
{
	API_BEGIN();
	if (!handle_is(graph, HANDLE_GRAPH) || !handle_is(object, HANDLE_USER_OBJECT) || !count ||
	    flags & ~(unsigned int)CU_GRAPH_USER_OBJECT_MOVE)
		return CUDA_ERROR_INVALID_VALUE;
	struct graph_user_object *own = graph_object(graph, object);
	if (!own) {
		struct graph_user_object *grown = realloc(
			graph->objects, (graph->object_count + 1) * sizeof(graph->objects[0]));

		if (!grown)
			return CUDA_ERROR_OUT_OF_MEMORY;
		graph->objects = grown;
		own = &grown[graph->object_count++];
		*own = (struct graph_user_object){.object = object};
	}
	own->refs += count;
	/* Moved references were the caller's. */
	if (!(flags & CU_GRAPH_USER_OBJECT_MOVE))
		atomic_fetch_add(&object->refs, count);
	return CUDA_SUCCESS;
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count)
{
	API_BEGIN();
	if (!handle_is(graph, HANDLE_GRAPH) || !handle_is(object, HANDLE_USER_OBJECT))
		return CUDA_ERROR_INVALID_VALUE;
	struct graph_user_object *own = graph_object(graph, object);
	if (!own || own->refs < count)
		return CUDA_ERROR_INVALID_VALUE;
	own->refs -= count;
	if (!own->refs)
		*own = graph->objects[--graph->object_count];
	user_object_release(object, count);
	return CUDA_SUCCESS;
}
