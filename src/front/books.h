/* Charging the process's slot: reserve before the driver is called, return when it refused or when
 * the memory is gone. Amounts are what the driver takes: blocks of 2 MiB, shared by small
 * allocations. Any thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"
#include "front/process.h"

/* What the driver hands out memory in (the granularity cuMemGetAllocationGranularity tells). */
#define BOOKS_BLOCK MIB(2)
/* More than any GPU has; larger amounts are refused before they overflow. */
#define BOOKS_MOST (1ull << 46)

/* What is charged for an amount becomes what is charged for another, in one step: 0 reserves `to`,
 * and `to` 0 returns `from`. Amounts below BOOKS_BLOCK are small: they are charged by the blocks
 * that all small ones of the GPU fill together. Larger ones are rounded up to blocks. 0, or -ENOMEM
 * with nothing changed, which cannot happen where `to` is not more; it counts as refused by the
 * slice. */
int books_resize(struct process *p, uint32_t gpu, uint64_t from, uint64_t to);

/* Around a driver call that takes memory: _reserve, then _keep or _return; around one that gives it:
 * _take, then _return, or _keep where the driver did not free it. The slot counts calls that are under
 * way in between, when the driver's figures and its own may differ. */

/* Reserves as books_resize(p, gpu, 0, bytes) does. */
int books_call_reserve(struct process *p, uint32_t gpu, uint64_t bytes);
/* Remembers what was reserved, by the handle that the driver gave. What had that handle before is gone
 * without our seeing it, and is returned. Where there is no memory to remember it, it stays charged
 * until the process ends. */
void books_call_keep(struct process *p, const struct object *object);
void books_call_return(struct process *p, uint32_t gpu, uint64_t bytes);
/* Moves an object out of the books; its amount stays charged. False: not one of ours, and no call is
 * counted. */
bool books_call_take(struct process *p, enum object_kind kind, uint64_t handle, struct object *ret);

/* Changes how often an object is referred to, and returns that; 0: not one of ours. */
uint32_t books_reference(struct process *p, enum object_kind kind, uint64_t handle, int change);
/* Forgets and returns everything that belonged to a context. */
void books_drop_context(struct process *p, uint64_t context);

/* The slice on a GPU: its limit, and what is free of it. */
uint64_t books_limit(const struct process *p, uint32_t gpu);
uint64_t books_free(const struct process *p, uint32_t gpu);
