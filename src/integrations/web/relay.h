/* Relays: what a browser sends goes on to carved, and what carved answers goes back. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct visitor;

#define RELAY_PROOF_NS 30000000000ull

extern const unsigned long relay_size;

/* The functions of struct door_kind. */
void relay_go_on(struct visitor *visitor);
void relay_gone(struct visitor *visitor);
bool relay_is_over(struct visitor *visitor, uint64_t now);
