#include "host/mig.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"

static bool family_fits(const struct mig_family *f, uint16_t device_id, uint32_t branch)
{
	if (branch < f->driver_since || branch >= f->driver_before)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(f->device_ids); i++)
		if (f->device_ids[i] == device_id)
			return true;
	return false;
}

bool mig_board_find(const struct sim_model *model, uint32_t branch, struct mig_board *ret)
{
	uint16_t device_id = (uint16_t)(model->pci_device_id >> 16);
	struct mig_board b = {.model = model};

	if (!model->mig_class)
		return false;
	for (size_t i = 0; i < mig_die_count; i++)
		if (!strcmp(mig_dies[i].name, model->mig_class))
			b.die = &mig_dies[i];
	for (size_t i = 0; i < mig_family_count && !b.family; i++)
		if (family_fits(&mig_families[i], device_id, branch))
			b.family = &mig_families[i];
	if (!b.die || !b.family)
		return false;
	mig_board_shuffle(&b);
	*ret = b;
	return true;
}

const struct mig_profile *mig_profile_by_enum(const struct mig_board *b, uint32_t nvml_enum)
{
	for (size_t i = 0; i < b->family->profile_count; i++)
		if (b->family->profiles[i].nvml_enum == nvml_enum)
			return &b->family->profiles[i];
	return NULL;
}

const struct mig_profile *mig_profile_by_id(const struct mig_board *b, uint32_t id)
{
	for (size_t i = 0; i < b->family->profile_count; i++)
		if (b->family->profiles[i].id == id)
			return &b->family->profiles[i];
	return NULL;
}

const struct mig_legal *mig_legal(const struct mig_board *b, const struct mig_profile *p)
{
	for (size_t i = 0; i < b->die->legal_count; i++)
		if (b->die->legal[i].profile_id == p->id)
			return &b->die->legal[i];
	return NULL;
}

/* The profile that is the whole GPU, and the smallest plain one. */
static const struct mig_profile *profile_whole(const struct mig_board *b)
{
	for (size_t i = 0; i < b->family->profile_count; i++)
		if (mig_legal(b, &b->family->profiles[i])->size == b->die->memory_units &&
		    !strpbrk(b->family->profiles[i].name, "+-"))
			return &b->family->profiles[i];
	return NULL;
}

static const struct mig_profile *profile_smallest(const struct mig_board *b)
{
	return mig_profile_by_enum(b, 0);
}

/* Where no figure was published: the profile's part of the board's memory, in steps of 128 MiB as
 * all published ones, less what the driver keeps. */
uint32_t mig_memory_mib(const struct mig_board *b, const struct mig_profile *p)
{
	uint64_t usable = b->model->memory_total - b->model->memory_reserved;

	if (p->memory_mib || b->family->memory_shared)
		return p->memory_mib;
	return (uint32_t)(usable * mig_legal(b, p)->size / b->die->memory_units / MIB(128) * 128);
}

uint32_t mig_gi_memory_mib(const struct mig_board *b, const struct mig_gi *gi)
{
	const struct mig_profile *p = mig_profile_by_id(b, gi->profile_id);

	if (p->other_memory_mib && gi->start == p->other_start)
		return p->other_memory_mib;
	return mig_memory_mib(b, p);
}

uint64_t mig_reserved_bytes(const struct mig_board *b, const struct mig_profile *p)
{
	return mig_legal(b, p)->size * MIB(12);
}

uint16_t mig_sm(const struct mig_board *b, const struct mig_profile *p)
{
	const struct mig_profile *small = profile_smallest(b);
	uint16_t slice = small->sm;

	if (p->sm)
		return p->sm;
	if (p == profile_whole(b))
		return (uint16_t)b->model->sm_count;
	/* An even number: two SMs share a texture processing cluster. */
	if (!slice)
		slice = (uint16_t)(b->model->sm_count / b->die->memory_units / 2 * 2);
	return (uint16_t)(slice * p->compute_slices);
}

/* GPU instances. Two things limit them: memory units, and the engines for video and images. A
 * profile has a number of engines, and the board as many as the profile of the whole GPU (a "+me"
 * profile takes the only ones there are). */
static uint32_t units_mask(uint8_t start, uint8_t size)
{
	return ((1u << size) - 1) << start;
}

static uint32_t units_used(const struct mig_state *s)
{
	uint32_t mask = 0;

	for (size_t i = 0; i < MIG_GI_MAX; i++)
		if (s->gi[i].used)
			mask |= units_mask(s->gi[i].start, s->gi[i].size);
	return mask;
}

static uint32_t gi_count(const struct mig_state *s, uint8_t profile_id)
{
	uint32_t n = 0;

	for (size_t i = 0; i < MIG_GI_MAX; i++)
		n += s->gi[i].used && s->gi[i].profile_id == profile_id;
	return n;
}

struct engines {
	uint32_t dec, enc, jpeg, ofa;
};

static struct engines engines_used(const struct mig_board *b, const struct mig_state *s)
{
	struct engines sum = {0};

	for (size_t i = 0; i < MIG_GI_MAX; i++) {
		const struct mig_profile *p = mig_profile_by_id(b, s->gi[i].profile_id);

		if (!s->gi[i].used || !p)
			continue;
		sum.dec += p->dec;
		sum.enc += p->enc;
		sum.jpeg += p->jpeg;
		sum.ofa += p->ofa;
	}
	return sum;
}

/* How many times one engine's need fits into what is left of it. */
static uint32_t engine_room(uint32_t all, uint32_t used, uint32_t need, uint32_t room)
{
	uint32_t left = all > used ? all - used : 0;

	return need ? MIN(room, left / need) : room;
}

/* How many more instances of the profile the engines allow; figures missing from the table do not
 * limit. */
static uint32_t engines_room(const struct mig_board *b, const struct mig_state *s,
			     const struct mig_profile *p)
{
	const struct mig_profile *all = profile_whole(b);
	struct engines used = engines_used(b, s);
	uint32_t room = MIG_GI_MAX;

	if (p == all || !all->dec)
		return room;
	room = engine_room(all->dec, used.dec, p->dec, room);
	room = engine_room(all->enc, used.enc, p->enc, room);
	room = engine_room(all->jpeg, used.jpeg, p->jpeg, room);
	return engine_room(all->ofa, used.ofa, p->ofa, room);
}

static uint32_t profile_room(const struct mig_board *b, const struct mig_state *s,
			     const struct mig_profile *p)
{
	uint32_t have = gi_count(s, p->id);
	uint32_t room = p->max_instances > have ? p->max_instances - have : 0;

	return MIN(room, engines_room(b, s, p));
}

static bool units_free(const struct mig_state *s, const struct mig_legal *legal, uint8_t start)
{
	return !(units_used(s) & units_mask(start, legal->size));
}

/* Whether one more of the profile would complete a set of those that cannot be together. */
static bool set_completed(const uint8_t set[4], const struct mig_state *s, uint8_t profile_id)
{
	bool in_set = false;

	for (size_t i = 0; i < 4 && set[i] != MIG_NO_ID; i++) {
		uint32_t needed = 0, have = gi_count(s, set[i]) + (set[i] == profile_id);

		for (size_t k = 0; k < 4 && set[k] != MIG_NO_ID; k++)
			needed += set[k] == set[i];
		if (have < needed)
			return false;
		in_set |= set[i] == profile_id;
	}
	return in_set;
}

static bool may_join(const struct mig_board *b, const struct mig_state *s,
		     const struct mig_profile *p)
{
	for (size_t i = 0; i < b->family->not_together_count; i++)
		if (set_completed(b->family->not_together[i], s, p->id))
			return false;
	return true;
}

bool mig_gi_fits(const struct mig_board *b, const struct mig_state *s, const struct mig_profile *p,
		 uint8_t start)
{
	return profile_room(b, s, p) > 0 && units_free(s, mig_legal(b, p), start) &&
	       may_join(b, s, p);
}

uint32_t mig_gi_remaining(const struct mig_board *b, const struct mig_state *s,
			  const struct mig_profile *p)
{
	const struct mig_legal *legal = mig_legal(b, p);
	uint32_t places = 0;

	/* Legal places of one profile never overlap. */
	for (size_t i = 0; i < legal->count; i++)
		places += units_free(s, legal, legal->starts[i]);
	return MIN(places, profile_room(b, s, p));
}

struct mig_gi *mig_gi_find(const struct mig_state *s, uint8_t id)
{
	for (size_t i = 0; i < MIG_GI_MAX; i++)
		if (s->gi[i].used && s->gi[i].id == id)
			return (struct mig_gi *)&s->gi[i];
	return NULL;
}

static bool profile_is_plain(const struct mig_profile *p)
{
	return !strpbrk(p->name, "+-");
}

/* How many (profile, start) pairs would still be feasible. */
static uint32_t places_left(const struct mig_board *b, const struct mig_state *s)
{
	uint32_t n = 0;

	for (size_t i = 0; i < b->family->profile_count; i++) {
		const struct mig_profile *p = &b->family->profiles[i];
		const struct mig_legal *legal = mig_legal(b, p);

		for (size_t k = 0; profile_is_plain(p) && k < legal->count; k++)
			n += units_free(s, legal, legal->starts[k]);
	}
	return n;
}

static struct mig_gi *gi_slot(struct mig_state *s)
{
	for (size_t i = 0; i < MIG_GI_MAX; i++)
		if (!s->gi[i].used)
			return &s->gi[i];
	return NULL;
}

/* The driver's choice: the place after which the most remains feasible; of equals, the lowest. */
static uint8_t gi_choose_start(const struct mig_board *b, const struct mig_state *s,
			       const struct mig_profile *p)
{
	const struct mig_legal *legal = mig_legal(b, p);
	uint8_t best = MIG_ANYWHERE;
	uint32_t best_left = 0;

	for (size_t i = 0; i < legal->count; i++) {
		struct mig_state after = *s;
		struct mig_gi *gi = gi_slot(&after);
		uint32_t left;

		if (!gi || !units_free(s, legal, legal->starts[i]))
			continue;
		*gi = (struct mig_gi){.used = 1,
				      .profile_id = p->id,
				      .start = legal->starts[i],
				      .size = legal->size};
		left = places_left(b, &after);
		if (best == MIG_ANYWHERE || left > best_left) {
			best = legal->starts[i];
			best_left = left;
		}
	}
	return best;
}

/* Instances are numbered by place, larger ones first. On boards that count from the other end
 * (command_mig.c), and on shuffled ones, that number may be somebody's. */
static uint8_t gi_number(const struct mig_board *b, const struct mig_state *s,
			 const struct mig_legal *legal, uint8_t start)
{
	uint8_t first = (uint8_t)(b->die->memory_units / legal->size - 1);
	uint8_t place = start / legal->size, id = (uint8_t)(first + place);

	if (mig_gi_find(s, id) && place <= first)
		id = (uint8_t)(2 * first - place);
	for (uint8_t lowest = 0; mig_gi_find(s, id); lowest++)
		id = lowest;
	return id;
}

int mig_gi_create(const struct mig_board *b, struct mig_state *s, uint32_t profile_id,
		  uint8_t start, uint8_t *ret_id)
{
	const struct mig_profile *p = mig_profile_by_id(b, profile_id);
	struct mig_gi *gi = gi_slot(s);
	const struct mig_legal *legal;

	if (!p)
		return -EINVAL;
	legal = mig_legal(b, p);
	if (start == MIG_ANYWHERE)
		start = gi_choose_start(b, s, p);
	else if (!memchr(legal->starts, start, legal->count))
		return -EINVAL;
	if (!gi || start == MIG_ANYWHERE || !mig_gi_fits(b, s, p, start))
		return -ENOSPC;
	*gi = (struct mig_gi){
		.used = 1,
		.id = gi_number(b, s, legal, start),
		.profile_id = p->id,
		.start = start,
		.size = legal->size,
	};
	*ret_id = gi->id;
	return 0;
}

int mig_gi_destroy(struct mig_state *s, uint8_t id)
{
	struct mig_gi *gi = mig_gi_find(s, id);

	if (!gi)
		return -ENOENT;
	for (size_t i = 0; i < MIG_CI_MAX; i++)
		if (gi->ci[i].used)
			return -EBUSY;
	*gi = (struct mig_gi){0};
	return 0;
}

/* Compute instances. */
enum {
	COMPUTE_ENUMS = 8,
	COMPUTE_1_SLICE_REV1 = 7,
	/* GPU instance profiles, as NVML's enum. */
	GPU_2_SLICE = 1,
	GPU_1_SLICE_REV2 = 9, /* double memory */
};

static const uint8_t compute_slices[COMPUTE_ENUMS] = {1, 2, 3, 4, 7, 8, 6, 1};

/* Slices are given out in powers of two: an instance of 3 starts where one of 4 would. */
static uint8_t ci_stride(uint8_t slices)
{
	uint8_t stride = 1;

	while (stride < slices)
		stride = (uint8_t)(stride * 2);
	return stride;
}

static uint8_t ci_places_max(uint8_t gi_slices, uint8_t slices)
{
	uint8_t n = 0;

	for (uint8_t start = 0; start + slices <= gi_slices; start += ci_stride(slices))
		n++;
	return n;
}

static bool compute_is_rev1(const struct mig_board *b, const struct mig_profile *p)
{
	/* Where one slice can have more SMs than its share: 1g with double memory, and 2g. */
	return b->family->compute_rules == MIG_COMPUTE_HOPPER && mig_profile_by_enum(b, 9) &&
	       (p->nvml_enum == 9 || p->nvml_enum == 1);
}

static bool compute_has_slices(const struct mig_profile *p, uint8_t slices)
{
	/* The whole; and of parts one, two, and of seven also three and four. */
	return slices == p->compute_slices ||
	       (slices < p->compute_slices && slices <= (p->compute_slices == 7 ? 4 : 2));
}

static uint16_t compute_sm(const struct mig_board *b, const struct mig_profile *p, uint8_t slices)
{
	return slices == p->compute_slices && p->nvml_enum != GPU_1_SLICE_REV2
		       ? mig_sm(b, p)
		       : (uint16_t)(mig_sm(b, profile_smallest(b)) * slices);
}

bool mig_compute_profile(const struct mig_board *b, const struct mig_gi *gi, uint32_t nvml_enum,
			 struct mig_compute_profile *ret)
{
	const struct mig_profile *p = mig_profile_by_id(b, gi->profile_id);
	bool rev1 = nvml_enum == COMPUTE_1_SLICE_REV1;
	uint8_t slices;

	if (!p || nvml_enum >= COMPUTE_ENUMS)
		return false;
	slices = compute_slices[nvml_enum];
	if (rev1 ? !compute_is_rev1(b, p) : !compute_has_slices(p, slices))
		return false;
	*ret = (struct mig_compute_profile){
		.id = (uint8_t)nvml_enum,
		.slices = slices,
		.max_instances = rev1 ? 1 : ci_places_max(p->compute_slices, slices),
		.sm = rev1 ? mig_sm(b, mig_profile_by_enum(b, GPU_1_SLICE_REV2))
			   : compute_sm(b, p, slices),
	};
	if (slices == p->compute_slices && ret->sm == mig_sm(b, p))
		snprintf(ret->name, sizeof(ret->name), "%s", p->name);
	else
		snprintf(ret->name, sizeof(ret->name), "%uc.%s", slices, p->name);
	return true;
}

uint32_t mig_ci_places(const struct mig_board *b, const struct mig_gi *gi, uint32_t profile_id,
		       uint8_t starts[MIG_CI_MAX], uint8_t *ret_size)
{
	const struct mig_profile *p = mig_profile_by_id(b, gi->profile_id);
	struct mig_compute_profile c;
	uint32_t n = 0;

	if (!p || !mig_compute_profile(b, gi, profile_id, &c))
		return 0;
	for (uint8_t start = 0; start + c.slices <= p->compute_slices && n < c.max_instances;
	     start += ci_stride(c.slices))
		starts[n++] = start;
	*ret_size = c.slices;
	return n;
}

static bool ci_free(const struct mig_gi *gi, uint8_t start, uint8_t size)
{
	for (size_t i = 0; i < MIG_CI_MAX; i++)
		if (gi->ci[i].used && gi->ci[i].start < start + size &&
		    start < gi->ci[i].start + gi->ci[i].size)
			return false;
	return true;
}

uint32_t mig_ci_remaining(const struct mig_board *b, const struct mig_gi *gi, uint32_t profile_id)
{
	uint8_t starts[MIG_CI_MAX], size;
	uint32_t places = mig_ci_places(b, gi, profile_id, starts, &size), n = 0;

	for (uint32_t i = 0; i < places; i++)
		n += ci_free(gi, starts[i], size);
	return n;
}

/* The first free place; with `start` only that one. */
static bool ci_choose(const struct mig_gi *gi, const uint8_t *starts, uint32_t places, uint8_t size,
		      uint8_t *start)
{
	for (uint32_t i = 0; i < places; i++) {
		if ((*start != MIG_ANYWHERE && *start != starts[i]) ||
		    !ci_free(gi, starts[i], size))
			continue;
		*start = starts[i];
		return true;
	}
	return false;
}

int mig_ci_create(const struct mig_board *b, struct mig_gi *gi, uint32_t profile_id, uint8_t start,
		  uint8_t *ret_id)
{
	uint8_t starts[MIG_CI_MAX], size;
	uint32_t places = mig_ci_places(b, gi, profile_id, starts, &size);

	if (!places || (start != MIG_ANYWHERE && !memchr(starts, start, places)))
		return -EINVAL;
	if (!ci_choose(gi, starts, places, size, &start))
		return -ENOSPC;
	for (uint8_t id = 0; id < MIG_CI_MAX; id++) {
		if (gi->ci[id].used)
			continue;
		gi->ci[id] = (struct mig_ci){
			.used = 1, .profile_id = (uint8_t)profile_id, .start = start, .size = size};
		*ret_id = id;
		return 0;
	}
	return -ENOSPC;
}

int mig_ci_destroy(struct mig_gi *gi, uint8_t id)
{
	if (id >= MIG_CI_MAX || !gi->ci[id].used)
		return -ENOENT;
	gi->ci[id] = (struct mig_ci){0};
	return 0;
}

/* Two rounds of a 64-bit mixer (splitmix64's) over what names the instance. */
static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

void mig_uuid(const uint8_t gpu_uuid[16], const struct mig_gi *gi, const struct mig_ci *ci,
	      char buf[static MIG_UUID_SIZE])
{
	uint64_t half[2], place = (uint64_t)gi->id << 8 | ci->start;

	memcpy(half, gpu_uuid, sizeof(half));
	half[0] = mix(half[0] ^ mix(place));
	half[1] = mix(half[1] ^ half[0]);
	/* Version 5, RFC 4122 variant. */
	snprintf(buf, MIG_UUID_SIZE, "MIG-%08x-%04x-5%03x-%04x-%012llx", (uint32_t)(half[0] >> 32),
		 (uint32_t)(half[0] >> 16 & 0xffff), (uint32_t)(half[0] & 0xfff),
		 (uint32_t)(half[1] >> 48 & 0x3fff) | 0x8000,
		 (unsigned long long)(half[1] & 0xffffffffffffULL));
}

/* Milliseconds for a GPU instance and its compute instance together, by slices: the constants of
 * the FAR scheduler, measured on these GPUs. */
uint64_t mig_change_ns(const struct mig_board *b, uint8_t slices, bool create, bool compute)
{
	static const uint16_t ampere[] = {160, 160, 170, 200, 210, 220, 230, 240, 240};
	static const uint16_t hopper[] = {160, 160, 210, 330, 380, 390, 410, 420, 420};
	bool is_ampere = b->model->arch == SIM_ARCH_AMPERE;
	uint64_t ms;

	slices = MIN(slices, (uint8_t)8);
	if (is_ampere && b->die->compute_slices == 4)
		ms = create ? 100 + slices * 10u : 100;
	else if (create)
		ms = is_ampere ? ampere[slices] : hopper[slices];
	else
		ms = is_ampere ? 210 : MIN(200 + slices * 15u, 260u);
	/* How it divides between the two is not known: the GPU instance is most of it. */
	return ms * 1000000 * (compute ? 1 : 3) / 4;
}

uint32_t mig_device_max(const struct mig_board *b)
{
	return profile_whole(b)->compute_slices;
}
