#include "core/busy.h"

#include <string.h>

/* How many slots ago the newest slot was. */
static uint64_t age_of(const struct busy *busy, uint64_t now)
{
	return now > busy->newest ? now - busy->newest : 0;
}

void busy_add(struct busy *busy, uint64_t now_ns, uint64_t used_ns)
{
	uint64_t now = now_ns / BUSY_SLOT_NS, age = age_of(busy, now);

	/* The slots that were passed meanwhile are those of a window ago. */
	if (age >= BUSY_SLOTS)
		memset(busy->used_ms, 0, sizeof(busy->used_ms));
	for (uint64_t i = 1; i <= age && age < BUSY_SLOTS; i++)
		busy->used_ms[(busy->newest + i) % BUSY_SLOTS] = 0;
	busy->newest += age;
	busy->used_ms[busy->newest % BUSY_SLOTS] += (uint32_t)(used_ns / 1000000);
}

uint32_t busy_percent(const struct busy *busy, uint64_t now_ns)
{
	uint64_t age = age_of(busy, now_ns / BUSY_SLOT_NS), sum = 0;

	/* Slots that are older than the window lie behind the newest one. */
	for (uint64_t i = 0; i + age < BUSY_SLOTS && i <= busy->newest; i++)
		sum += busy->used_ms[(busy->newest - i) % BUSY_SLOTS];
	uint64_t percent = sum * 100 / (BUSY_WINDOW_NS / 1000000);
	return percent < 100 ? (uint32_t)percent : 100;
}
