#include "host/faults.h"

#include <errno.h>
#include <string.h>

#include "base/macros.h"

static void fault_remove(struct faults *f, uint32_t i)
{
	f->changed = true;
	f->count--;
	memmove(&f->list[i], &f->list[i + 1], (f->count - i) * sizeof(f->list[0]));
}

static void faults_clear(struct faults *f, uint32_t fault)
{
	for (uint32_t i = f->count; i-- > 0;) {
		if (fault == WIRE_FAULTS || f->list[i].set.fault == fault)
			fault_remove(f, i);
	}
}

int faults_set(struct faults *f, const struct wire_fault_set *set, uint64_t now)
{
	if (set->fault > WIRE_FAULTS || (set->fault == WIRE_FAULTS && !set->clear) ||
	    set->call[WIRE_NAME_MAX - 1])
		return -EINVAL;
	if (set->clear) {
		faults_clear(f, set->fault);
		return 0;
	}
	if (f->count == FAULTS_MAX)
		return -ENOSPC;
	f->changed = true;
	f->list[f->count++] = (struct fault){
		.set = *set,
		.until = set->for_ns && set->for_ns < UINT64_MAX - now ? now + set->for_ns
								       : UINT64_MAX,
	};
	return 0;
}

/* A fault of a GPU hits its MIG devices too, one of a GPU instance the compute instances in it. */
static bool fault_is_there(const struct wire_fault_set *set, wire_device device)
{
	return set->any_device || set->device == device || set->device == wire_device_gpu(device) ||
	       (wire_device_is_mig(device) &&
		set->device == WIRE_DEVICE_MIG(wire_device_gpu(device), wire_device_gi(device),
					       WIRE_NO_INSTANCE));
}

static bool fault_fits(const struct fault *fault, enum wire_fault kind, wire_device device,
		       pid_t pid, const char *call, uint64_t now)
{
	const struct wire_fault_set *set = &fault->set;

	return set->fault == kind && now < fault->until && fault_is_there(set, device) &&
	       (!set->pid || set->pid == pid) &&
	       (!set->call[0] || (call && !strcmp(set->call, call)));
}

bool faults_hit(struct faults *f, enum wire_fault kind, wire_device device, pid_t pid,
		const char *call, uint64_t now, struct wire_fault_set *ret)
{
	for (uint32_t i = 0; i < f->count; i++) {
		struct fault *fault = &f->list[i];

		if (!fault_fits(fault, kind, device, pid, call, now))
			continue;
		if (fault->skipped < fault->set.skip) {
			fault->skipped++;
			continue;
		}
		*ret = fault->set;
		fault->hits++;
		if (fault->set.count && fault->hits >= fault->set.count)
			fault_remove(f, i);
		return true;
	}
	return false;
}

bool faults_take(struct faults *f, enum wire_fault kind, wire_device device, pid_t pid,
		 const char *call, uint64_t now, int32_t *ret_error, uint64_t *ret_delay_ns)
{
	struct wire_fault_set set;

	if (!faults_hit(f, kind, device, pid, call, now, &set))
		return false;
	*ret_error = set.error;
	*ret_delay_ns = set.delay_ns;
	return true;
}

bool faults_state(const struct faults *f, enum wire_fault kind, wire_device device,
		  int32_t *ret_pid)
{
	for (uint32_t i = 0; i < f->count; i++) {
		const struct wire_fault_set *set = &f->list[i].set;

		if (set->fault != kind || !fault_is_there(set, device))
			continue;
		*ret_pid = set->pid;
		return true;
	}
	return false;
}

void faults_expire(struct faults *f, uint64_t now)
{
	for (uint32_t i = f->count; i-- > 0;) {
		if (now >= f->list[i].until)
			fault_remove(f, i);
	}
}

uint32_t faults_armed(const struct faults *f)
{
	uint32_t armed = 0;

	for (uint32_t i = 0; i < f->count; i++)
		armed |= 1u << f->list[i].set.fault;
	return armed;
}

bool faults_on_gpu(const struct faults *f, enum wire_fault kind, uint32_t gpu)
{
	for (uint32_t i = 0; i < f->count; i++) {
		const struct wire_fault_set *set = &f->list[i].set;

		if (set->fault == kind && (set->any_device || set->device == gpu) && !set->pid &&
		    !set->call[0])
			return true;
	}
	return false;
}

uint64_t faults_wake(const struct faults *f)
{
	uint64_t wake = UINT64_MAX;

	for (uint32_t i = 0; i < f->count; i++)
		wake = MIN(wake, f->list[i].until);
	return wake;
}
