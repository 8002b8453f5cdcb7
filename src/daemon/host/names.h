/* Names of users and groups, and their IDs. A look-up may ask a server that takes seconds, and
 * clients decide which names are looked up. So the loop reads only the machine's own files
 * (/etc/passwd, /etc/group, whose size root decides). The thread pool asks for other names: one ID
 * and one name at a time. Its answers are kept in two tables of fixed size.
 *
 *   entry    what happens                    next
 *   EMPTY    it is asked for, not in files   ASKED
 *   EMPTY    likewise, it is in the files    KNOWN
 *   ASKED    the answer came                 KNOWN, or NOBODY
 *   KNOWN    NAMES_ANEW_NS have passed, or   EMPTY with the next question: users are removed and
 *   NOBODY   the file has changed            renamed, and their numbers go to others
 *   any      another one needs the place     EMPTY
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

enum names_kind { NAMES_OF_USERS, NAMES_OF_GROUPS };

#define NAMES_SIZE 64u
/* A name is looked for again after this time, also one that was found. */
#define NAMES_ANEW_NS 60000000000ull

/* The name, or the number while that is not known; static, until an entry is replaced. While a name
 * is looked for again, the one that was known. */
const char *names_of(enum names_kind kind, uint32_t id);
/* Whether that is not known yet. */
bool names_asked(enum names_kind kind, uint32_t id);
/* The ID. -ENOENT: there is nobody of that name. -EINPROGRESS: it is being asked for, as soon as
 * names_look() is called. */
int names_find(enum names_kind kind, const char *name, uint32_t *ret);
/* The same by the files alone, without asking. */
int names_find_here(enum names_kind kind, const char *name, uint32_t *ret);
/* Like names_find_here(), where `name` may also be a number that is written out. */
int names_id_here(enum names_kind kind, const char *name, uint32_t *ret);
/* Calls cb(arg) once, when the next answer is in; not after names_forget() or names_stop(). 0 or
 * -ENOMEM. */
typedef void (*names_cb)(void *arg);
int names_await(names_cb cb, void *arg);
/* The waiter with this `arg` is gone. */
void names_forget(const void *arg);
/* Looks the open questions up on the loop's threads. To be called before the loop sleeps. */
void names_look(uv_loop_t *loop);
/* The loop ends: forgets all waiters. */
void names_stop(void);
