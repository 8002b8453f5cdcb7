/* From a request to the profiles of a die that fulfil it. */
#include "core/mig_private.h"

#include <string.h>

#include "base/units.h"
#include "core/place.h"

/* The meaning of a request on a die. */
struct want {
	uint64_t bytes;
	uint32_t size; /* memory units */
	uint32_t sms;
};

static uint64_t parts_up(uint64_t whole, uint32_t share)
{
	return (whole * share + SHARE_ONE - 1) / SHARE_ONE;
}

static struct want want_of(const struct mig_die *die, const struct mig_request *request)
{
	return (struct want){
		.bytes = request->kind == MIG_ASK_BYTES ? request->bytes : 1,
		.size = request->kind == MIG_ASK_SHARE
				? (uint32_t)parts_up(die->units, request->share)
				: 1,
		.sms = (uint32_t)parts_up(die->sms, request->compute),
	};
}

/* Special profiles, and those of whose memory nothing is known, are given by name only. */
static bool profile_is_offered(const struct mig_profile *p)
{
	return p->starts && p->memory_bytes && !(p->flags & ~(uint32_t)MIG_NO_MEDIA);
}

static bool profile_fulfils(const struct mig_profile *p, const struct want *want)
{
	return profile_is_offered(p) && p->memory_bytes >= want->bytes && p->size >= want->size &&
	       p->sms >= want->sms;
}

/* Memory first, then compute, then units; of equals the ordinary one. */
static bool profile_is_smaller(const struct mig_profile *a, const struct mig_profile *b)
{
	if (a->memory_bytes != b->memory_bytes)
		return a->memory_bytes < b->memory_bytes;
	if (a->slices != b->slices)
		return a->slices < b->slices;
	if (a->size != b->size)
		return a->size < b->size;
	return a->flags < b->flags;
}

/* Differ in their engines alone. */
static bool profile_is_alike(const struct mig_profile *a, const struct mig_profile *b)
{
	return a->size == b->size && a->memory_bytes == b->memory_bytes && a->slices == b->slices &&
	       a->sms == b->sms;
}

/* `first` and what can stand in for it. */
static uint8_t alike_fill(const struct mig_die *die, uint8_t first, uint8_t out[MIG_PROFILES_MAX])
{
	uint8_t count = 0;

	out[count++] = first;
	for (uint32_t i = 0; i < die->profile_count; i++)
		if (i != first && profile_is_offered(&die->profile[i]) &&
		    profile_is_alike(&die->profile[i], &die->profile[first]))
			out[count++] = (uint8_t)i;
	return count;
}

static uint8_t smallest_that_fulfils(const struct mig_die *die, const struct want *want)
{
	uint8_t best = MIG_NO_PROFILE;

	for (uint32_t i = 0; i < die->profile_count; i++)
		if (profile_fulfils(&die->profile[i], want) &&
		    (best == MIG_NO_PROFILE ||
		     profile_is_smaller(&die->profile[i], &die->profile[best])))
			best = (uint8_t)i;
	return best;
}

static uint64_t tolerated(uint64_t wanted)
{
	return (uint64_t)(((unsigned __int128)wanted * PLACE_TOLERANCE_PERCENT + 99) / 100);
}

/* The profile with the most memory that fulfils `nearly`, but not `want`, and is smaller than `fit`
 * (any, where that is none); of equals the one that takes less. */
static uint8_t largest_that_nearly_fulfils(const struct mig_die *die, const struct want *nearly,
					   const struct want *want, uint8_t fit)
{
	uint8_t best = MIG_NO_PROFILE;

	for (uint32_t i = 0; i < die->profile_count; i++) {
		const struct mig_profile *p = &die->profile[i];

		if (!profile_fulfils(p, nearly) || profile_fulfils(p, want) ||
		    (fit != MIG_NO_PROFILE && !profile_is_smaller(p, &die->profile[fit])))
			continue;
		if (best == MIG_NO_PROFILE || p->memory_bytes > die->profile[best].memory_bytes ||
		    (p->memory_bytes == die->profile[best].memory_bytes &&
		     profile_is_smaller(p, &die->profile[best])))
			best = (uint8_t)i;
	}
	return best;
}

static void match_named(const struct mig_die *die, uint8_t profile, struct mig_match *ret)
{
	if (profile < die->profile_count && die->profile[profile].starts)
		ret->fit[ret->fit_count++] = profile;
}

/* Only to memory does the 93% rule apply; a profile that has nearly enough SMs is just named. */
static void match_less(const struct mig_die *die, const struct want *want, bool strict,
		       struct mig_match *ret)
{
	uint8_t fit = ret->fit_count ? ret->fit[0] : MIG_NO_PROFILE;
	struct want nearly = {tolerated(want->bytes), want->size, (uint32_t)tolerated(want->sms)};
	struct want less = {nearly.bytes, want->size, want->sms};
	uint8_t granted = largest_that_nearly_fulfils(die, &less, want, fit);

	ret->near = largest_that_nearly_fulfils(die, &nearly, want, fit);
	if (!strict && granted != MIG_NO_PROFILE)
		ret->less_count = alike_fill(die, granted, ret->less);
}

void mig_match(const struct mig_die *die, uint32_t die_number, const struct mig_request *request,
	       struct mig_match *ret)
{
	struct want want = want_of(die, request);

	*ret = (struct mig_match){.near = MIG_NO_PROFILE};
	if (request->kind == MIG_ASK_PROFILE) {
		match_named(die, request->profile[die_number], ret);
		return;
	}
	uint8_t fit = smallest_that_fulfils(die, &want);
	if (fit != MIG_NO_PROFILE)
		ret->fit_count = alike_fill(die, fit, ret->fit);
	if (request->kind == MIG_ASK_BYTES)
		match_less(die, &want, request->strict, ret);
}

uint64_t mig_requested(const struct mig_die *die, uint32_t die_number,
		       const struct mig_request *request)
{
	uint64_t largest = 0;

	switch (request->kind) {
	case MIG_ASK_BYTES:
		return request->bytes;
	case MIG_ASK_PROFILE:
		return request->profile[die_number] < die->profile_count
			       ? die->profile[request->profile[die_number]].memory_bytes
			       : 0;
	case MIG_ASK_SHARE:
		break;
	}
	for (uint32_t i = 0; i < die->profile_count; i++)
		if (largest < die->profile[i].memory_bytes)
			largest = die->profile[i].memory_bytes;
	return (uint64_t)((unsigned __int128)largest * request->share / SHARE_ONE);
}
