#include "core/turns.h"

#include <stddef.h>

void turns_add(struct turns *turns, struct turn *turn, uid_t user)
{
	struct turn **at = &turns->first;

	turn->user = user;
	turn->next = NULL;
	while (*at)
		at = &(*at)->next;
	*at = turn;
}

void turns_remove(struct turns *turns, const struct turn *turn)
{
	struct turn **at = &turns->first;

	while (*at != turn)
		at = &(*at)->next;
	*at = turn->next;
}

void turns_pass(struct turns *turns, uid_t user)
{
	struct turn *its = NULL, **its_end = &its, **at = &turns->first;

	while (*at) {
		struct turn *turn = *at;

		if (turn->user != user) {
			at = &turn->next;
			continue;
		}
		*at = turn->next;
		*its_end = turn;
		its_end = &turn->next;
	}
	*its_end = NULL;
	*at = its;
}
