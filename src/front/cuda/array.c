/* Arrays and mipmapped arrays: sized here from their descriptors, as the driver tells the size only
 * of those that it gives no memory to. Rows are padded as in tiles of 64 bytes by 8 rows. Several
 * small ones share a block; into which it packs them, the driver does not tell. */
#include <time.h>

#include "front/books.h"
#include "front/cuda/charge/charge.h"
#include "front/cuda/charge/grow.h"
#include "front/cuda/hooks.h"

#define TILE_BYTES 64ull
#define TILE_ROWS 8ull
/* Formats that are not in the table are video formats of at most this many bits a pixel. */
#define BITS_MOST 64u
/* No GPU has larger extents; larger ones are the driver's to refuse. */
#define EXTENT_MAX (1ull << 20)
/* Levels begin at multiples of this. */
#define LEVEL_STEP 512ull

/* Bits of one channel, or of a whole texel where `channels` says that those are in it. */
struct format {
	CUarray_format first, last;
	uint32_t bits;
	bool whole;
};

static uint64_t bits_of(CUarray_format format, unsigned int channels)
{
	static const struct format formats[] = {
		{CU_AD_FORMAT_UNSIGNED_INT8, CU_AD_FORMAT_UNSIGNED_INT8, 8, false},
		{CU_AD_FORMAT_UNSIGNED_INT16, CU_AD_FORMAT_UNSIGNED_INT16, 16, false},
		{CU_AD_FORMAT_UNSIGNED_INT32, CU_AD_FORMAT_UNSIGNED_INT32, 32, false},
		{CU_AD_FORMAT_SIGNED_INT8, CU_AD_FORMAT_SIGNED_INT8, 8, false},
		{CU_AD_FORMAT_SIGNED_INT16, CU_AD_FORMAT_SIGNED_INT16, 16, false},
		{CU_AD_FORMAT_SIGNED_INT32, CU_AD_FORMAT_SIGNED_INT32, 32, false},
		{CU_AD_FORMAT_HALF, CU_AD_FORMAT_HALF, 16, false},
		{CU_AD_FORMAT_FLOAT, CU_AD_FORMAT_FLOAT, 32, false},
		{CU_AD_FORMAT_UNORM_INT_101010_2, CU_AD_FORMAT_UNORM_INT_101010_2, 32, true},
		{CU_AD_FORMAT_BC1_UNORM, CU_AD_FORMAT_BC1_UNORM_SRGB, 4, true},
		{CU_AD_FORMAT_BC2_UNORM, CU_AD_FORMAT_BC3_UNORM_SRGB, 8, true},
		{CU_AD_FORMAT_BC4_UNORM, CU_AD_FORMAT_BC4_SNORM, 4, true},
		{CU_AD_FORMAT_BC5_UNORM, CU_AD_FORMAT_BC7_UNORM_SRGB, 8, true},
		{CU_AD_FORMAT_UNORM_INT8X1, CU_AD_FORMAT_UNORM_INT8X1, 8, true},
		{CU_AD_FORMAT_UNORM_INT8X2, CU_AD_FORMAT_UNORM_INT8X2, 16, true},
		{CU_AD_FORMAT_UNORM_INT8X4, CU_AD_FORMAT_UNORM_INT8X4, 32, true},
		{CU_AD_FORMAT_UNORM_INT16X1, CU_AD_FORMAT_UNORM_INT16X1, 16, true},
		{CU_AD_FORMAT_UNORM_INT16X2, CU_AD_FORMAT_UNORM_INT16X2, 32, true},
		{CU_AD_FORMAT_UNORM_INT16X4, CU_AD_FORMAT_UNORM_INT16X4, 64, true},
		{CU_AD_FORMAT_SNORM_INT8X1, CU_AD_FORMAT_SNORM_INT8X1, 8, true},
		{CU_AD_FORMAT_SNORM_INT8X2, CU_AD_FORMAT_SNORM_INT8X2, 16, true},
		{CU_AD_FORMAT_SNORM_INT8X4, CU_AD_FORMAT_SNORM_INT8X4, 32, true},
		{CU_AD_FORMAT_SNORM_INT16X1, CU_AD_FORMAT_SNORM_INT16X1, 16, true},
		{CU_AD_FORMAT_SNORM_INT16X2, CU_AD_FORMAT_SNORM_INT16X2, 32, true},
		{CU_AD_FORMAT_SNORM_INT16X4, CU_AD_FORMAT_SNORM_INT16X4, 64, true},
	};

	for (size_t i = 0; i < ARRAY_SIZE(formats); i++)
		if (format >= formats[i].first && format <= formats[i].last)
			return formats[i].whole ? formats[i].bits
						: formats[i].bits * (uint64_t)channels;
	return BITS_MOST;
}

static uint64_t level_bytes(uint64_t width, uint64_t height, uint64_t depth, uint64_t bits)
{
	uint64_t row = ALIGN_UP(ALIGN_UP(width * bits, 8) / 8, TILE_BYTES);

	return row * (height > 1 ? ALIGN_UP(height, TILE_ROWS) : 1) * MAX(depth, 1);
}

/* Too large for any GPU, or without memory of its own (that is mapped into it later, and was
 * charged when it was created). */
static bool takes_nothing(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	return d->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING) ||
	       d->Width > EXTENT_MAX || d->Height > EXTENT_MAX || d->Depth > EXTENT_MAX ||
	       d->Width * MAX(d->Height, 1) > BOOKS_MOST / MAX(d->Depth, 1);
}

/* The next level's extent; 0 stands for a dimension that is not there. */
static uint64_t halved(uint64_t extent)
{
	return extent > 1 ? extent / 2 : extent;
}

/* Until the longest extent is 1; the driver makes no more. */
static unsigned int levels_most(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	unsigned int count = 1;

	for (size_t longest = MAX(d->Width, MAX(d->Height, d->Depth)); longest > 1; longest /= 2)
		count++;
	return count;
}

/* Bytes of an array with that many levels. */
static uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned int levels)
{
	uint64_t width = d->Width, height = d->Height, depth = d->Depth, sum = 0;
	uint64_t bits = bits_of(d->Format, d->NumChannels);
	bool layered = d->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);

	if (takes_nothing(d))
		return 0;
	for (unsigned int level = 0; level < MIN(levels, levels_most(d)); level++) {
		sum += ALIGN_UP(level_bytes(width, height, depth, bits), LEVEL_STEP);
		width = halved(width);
		height = halved(height);
		depth = layered ? depth : halved(depth);
	}
	return sum;
}

/* How often an array that is to be made waits while somebody is short of room, and how long each
 * time (ns). Else a block more than it takes would be charged for it meanwhile. */
#define SHORT_MOST 100
#define SHORT_AGAIN_NS 100000L

static void short_wait(struct process *p, int gpu)
{
	if (gpu < 0 || !charge_is_short(p, gpu))
		return;
	grow_exact_arrays(p, gpu, false);
	for (int i = 0; i < SHORT_MOST && charge_is_short(p, gpu); i++)
		nanosleep(&(struct timespec){.tv_nsec = SHORT_AGAIN_NS}, NULL);
}

static CUresult array_begin(struct taking *t, enum object_kind kind,
			    const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned int levels)
{
	uint64_t bytes = d ? array_bytes(d, levels) : 0;
	struct process *p = bytes && bytes < BLOCK_BYTES ? process_peek() : NULL;

	/* The excess charged for small ones does not show beside it. */
	if (p) {
		grow_settle_leaving(p);
		short_wait(p, charge_current_gpu(p));
	}
	CUresult result = taking_begin(t, kind, bytes);
	t->object.memory = bytes < BLOCK_BYTES ? bytes : 0;
	return result;
}

static CUresult array_end(struct taking *t, CUresult result, uint64_t handle)
{
	struct process *p = t->process;

	if (!p || result != CUDA_SUCCESS || !t->object.memory)
		return taking_end(t, result, handle);
	books_array_packed(p, &t->object, t->object.memory);
	if (charge_is_short(p, t->object.gpu))
		grow_exact_arrays(p, t->object.gpu, true);
	else
		grow_settle_arrays(p, t->object.gpu, true);
	return taking_end(t, result, handle);
}

/* The driver's call that makes one, between what is charged before and booked after it. */
#define CREATE(array, kind, d, levels, call)                       \
	struct taking taking_;                                     \
	CUresult result_ = array_begin(&taking_, kind, d, levels); \
	if (result_ != CUDA_SUCCESS)                               \
		return REFUSED(result_, array, call);              \
	result_ = TAKE(&taking_, call);                            \
	return array_end(&taking_, result_, result_ == CUDA_SUCCESS ? (uintptr_t) * (array) : 0)

/* The descriptor of a flat array as one of three dimensions. */
#define FLAT(d)                                                                    \
	(CUDA_ARRAY3D_DESCRIPTOR)                                                  \
	{                                                                          \
		.Width = (d)->Width, .Height = (d)->Height, .Format = (d)->Format, \
		.NumChannels = (d)->NumChannels                                    \
	}

CUresult hook_cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *d)
{
	CUDA_ARRAY3D_DESCRIPTOR wide = {0};

	if (d)
		wide = FLAT(d);
	CREATE(array, OBJECT_ARRAY, &wide, 1, real_cuArrayCreate_v2(array, d));
}

CUresult hook_cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *d)
{
	CUDA_ARRAY3D_DESCRIPTOR wide = {0};

	if (d)
		wide = FLAT(d);
	CREATE(array, OBJECT_ARRAY, &wide, 1, real_cuArrayCreate(array, d));
}

CUresult hook_cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	CREATE(array, OBJECT_ARRAY, d, 1, real_cuArray3DCreate_v2(array, d));
}

CUresult hook_cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *d)
{
	CUDA_ARRAY3D_DESCRIPTOR wide = {0};

	if (d) {
		wide = FLAT(d);
		wide.Depth = d->Depth;
		wide.Flags = d->Flags;
	}
	CREATE(array, OBJECT_ARRAY, &wide, 1, real_cuArray3DCreate(array, d));
}

CUresult hook_cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *d,
				     unsigned int levels)
{
	CREATE(array, OBJECT_MIPMAP, d, levels, real_cuMipmappedArrayCreate(array, d, levels));
}

static CUresult array_gone(struct giving *g, struct process *waiting, CUresult result)
{
	giving_end(g, result);
	if (g->process && g->object.memory)
		grow_settle_arrays(g->process, g->object.gpu, false);
	return grow_waited(waiting, result);
}

CUresult hook_cuArrayDestroy(CUarray array)
{
	struct process *waiting = grow_waits_begin();
	struct giving g;

	giving_begin(&g, OBJECT_ARRAY, (uintptr_t)array);
	return array_gone(&g, waiting, real_cuArrayDestroy(array));
}

CUresult hook_cuMipmappedArrayDestroy(CUmipmappedArray array)
{
	struct process *waiting = grow_waits_begin();
	struct giving g;

	giving_begin(&g, OBJECT_MIPMAP, (uintptr_t)array);
	return array_gone(&g, waiting, real_cuMipmappedArrayDestroy(array));
}
