/* The files of queues in a state directory (state.h), when that moves: the database of jobs, and
 * the directory of their logs and records. Nobody serves either directory meanwhile. */
#pragma once

/* Before `to` is the directory that counts: has there what `from` has, which stays. Logs and
 * records stay where they are, as jobs may run, and are found by a link. 0 or -errno. */
int state_jobs_copy(const char *from, const char *to);
/* The directory of the jobs that a launcher starts, which is root's and beside the state directory.
 * As root, before `to` is the directory that counts. It has the launcher's key, and is no link. 0
 * or -errno; -EXDEV: they are on two file systems. */
int state_jobs_move_users(const char *from, const char *to);
/* `to` is the directory that counts: the other database goes. */
void state_jobs_leave(const char *from);
