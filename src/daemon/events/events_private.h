/* The inside of the event log. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/host/listeners.h"
#include "daemon/store/store.h"

struct events {
	struct store *store;
	struct store_event_log log;
	bool boot_due;             /* no event of this life of the host is in the database */
	int64_t of_users, of_node; /* events in the database */
	unsigned seconds;          /* since the last look for old events */
	bool told;                 /* listeners have not heard of the last event */
	struct listeners listeners;
	struct store_notice notice;
};
