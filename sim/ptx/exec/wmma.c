/* Matrices that a warp holds. Which lane has which element is the implementation's affair: here
 * element e of lane l is number 32 e + l of the matrix, row by row. */
#include "base/macros.h"
#include "ptx/exec/handlers.h"
#include "ptx/exec/real.h"
#include "ptx/lower.h"

#define ELEMENTS_OF_MATRIX 512 /* 32 x 16 */

static double element_read(const unsigned char *from, enum type type)
{
	uint64_t bits = 0;

	memcpy(&bits, from, type_size(type));
	switch (type) {
	case TYPE_F16:
	case TYPE_BF16:
		return half_to_double((uint16_t)bits, half_format(type));
	case TYPE_TF32: /* the lower bits are not looked at */
		return bits_f32((uint32_t)bits & ~0x1fffu);
	case TYPE_F32:
		return bits_f32((uint32_t)bits);
	case TYPE_U8:
		return (double)bits;
	case TYPE_S8:
		return (int8_t)bits;
	case TYPE_S32:
		return (int32_t)bits;
	default:
		return bits_f64(bits);
	}
}

static uint64_t element_bits(double value, enum type type, bool saturates)
{
	switch (type) {
	case TYPE_F16:
		return half_from_double(value, half_format(type), ROUND_NEAREST);
	case TYPE_F32:
		return f32_bits(canonical_f32((float)value));
	case TYPE_S32: /* sums of products of bytes are exact */
		if (saturates)
			value = MIN(MAX(value, (double)INT32_MIN), (double)INT32_MAX);
		return (uint32_t)(int64_t)value;
	default:
		return f64_bits(value);
	}
}

/* Where element e of a lane is, by the fragment's registers. */
static unsigned char *element_at(const struct warp *warp, const uint32_t *refs, enum type type,
				 unsigned e, unsigned lane)
{
	unsigned size = type_size(type), width = type == TYPE_F64 ? 8 : 4, each = width / size;

	return (unsigned char *)value_at(warp, refs[e / each]) + (size_t)lane * width +
	       (size_t)(e % each) * size;
}

static void gather(const struct warp *warp, const uint32_t *refs, enum type type, unsigned count,
		   double *to)
{
	for (unsigned i = 0; i < count; i++)
		to[i] = element_read(element_at(warp, refs, type, i / WARP_LANES, i % WARP_LANES),
				     type);
}

static double dot(const struct wmma *w, const double *row, const double *column, double sum)
{
	for (unsigned k = 0; k < w->k; k++)
		sum = fma(row[k], column[(size_t)k * w->n], sum);
	return sum;
}

HANDLER(wmma_mma)
{
	const struct wmma *w = (const void *)&warp->extra[insn->extra];
	double a[ELEMENTS_OF_MATRIX] = {0}, b[ELEMENTS_OF_MATRIX] = {0}, c[ELEMENTS_OF_MATRIX];
	const uint32_t *refs = w->refs + w->written;

	gather(warp, refs, w->type_in, w->m * w->k, a);
	refs += w->a_registers;
	gather(warp, refs, w->type_in, w->k * w->n, b);
	refs += w->b_registers;
	gather(warp, refs, w->type_c, w->m * w->n, c);
	for (unsigned i = 0; i < w->m * w->n; i++) {
		double sum = dot(w, a + (size_t)(i / w->n) * w->k, b + i % w->n, c[i]);
		uint64_t bits = element_bits(sum, w->type_d, w->saturates);

		memcpy(element_at(warp, w->refs, w->type_d, i / WARP_LANES, i % WARP_LANES), &bits,
		       type_size(w->type_d));
	}
}

/* Moves each element between its register and its place in memory. */
static void move(struct warp *warp, const struct insn *insn, bool store)
{
	const struct wmma *w = (const void *)&warp->extra[insn->extra];
	uint32_t rows = w->matrix == WMMA_B ? w->k : w->m;
	uint32_t columns = w->matrix == WMMA_A ? w->k : w->n;
	const uint32_t *strides = SRC(uint32_t, 1);
	unsigned size = type_size(w->type_in);

	warp->launch->result->memory_instructions++;
	for (unsigned i = 0; i < rows * columns; i++) {
		unsigned lane = i % WARP_LANES;
		uint64_t row = i / columns, column = i % columns, stride = strides[lane];
		uint64_t index = w->by_column ? column * stride + row : row * stride + column;
		unsigned char *place = element_at(warp, w->refs, w->type_in, i / WARP_LANES, lane);
		unsigned char *at = warp_resolve(
			warp, lane_address(warp, insn, lane) + index * size, size, store, lane);

		if (!at)
			return;
		memcpy(store ? at : place, store ? place : at, size);
	}
}

HANDLER(wmma_load)
{
	move(warp, insn, false);
}

HANDLER(wmma_store)
{
	move(warp, insn, true);
	warp->spins = 0;
	warp->idle = false;
	warp->watches = false;
}
