/* GET /v1/limits: what limits a user, one row for each limit, and from where it comes.
 *
 * A policy shows itself by a function in the table `sources` (api_limits.c), which adds its rows
 * with limits_add() (limits_row.h). `carve limits` prints any row by its title and its unit, so a
 * new policy needs no change there. */
#pragma once

struct call;

void api_get_limits(struct call *call, const char *unused);
