/* Takes up the jobs that the last daemon left. */
#pragma once

struct queues;

/* The jobs of the database are in the table, pending. */
void jobs_restore(struct queues *q);
