/* carve's client interface for C: what the `carve` command does, for programs.
 *
 * A connection is used by one thread at a time; several connections may be used by several threads.
 * Functions that return int return 0, or one of the CARVE_E codes, and then carve_error_message()
 * and carve_error_hint() say what was wrong. Answers are JSON text (UTF-8) in the forms of
 * `carve --json`, allocated with malloc() and freed by the caller; they are set on success only.
 * Texts that are handed in are copied: they need not outlive the call. Where an `id` is asked for,
 * a session's name will do, and NULL is the caller's current session. An example that uses most of
 * this is examples/session.c.
 */
#ifndef CARVE_CARVE_H
#define CARVE_CARVE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CARVE_API __attribute__((visibility("default")))
#else
#define CARVE_API
#endif

/* As the exit codes of the command. */
#define CARVE_E_FAILED 1
#define CARVE_E_USAGE 2
#define CARVE_E_NO_ROOM 3
#define CARVE_E_UNREACHABLE 4
#define CARVE_E_NOT_PERMITTED 5

typedef struct carve carve_t;

/* Connects to the daemon at the socket `host`. NULL means the same choice as the command's:
 * $CARVE_HOST, the system's daemon, or the user's own. The user's own daemon is started where it
 * does not run and no system's daemon is installed. A daemon of another user's, root aside, is
 * refused (CARVE_E_NOT_PERMITTED). A connection is returned in *ret even on failure, for the
 * error's text, unless memory ran out (then NULL). */
CARVE_API int carve_connect(const char *host, carve_t **ret);
/* NULL is allowed. */
CARVE_API void carve_close(carve_t *carve);

/* The last error of this connection: its code (0: none), and one line each of what was wrong and of
 * what would be right; "" where there is none. Valid until the next call. */
CARVE_API int carve_error_code(const carve_t *carve);
CARVE_API const char *carve_error_message(const carve_t *carve);
CARVE_API const char *carve_error_hint(const carve_t *carve);

/* The GPUs, as `carve gpu list --json` prints them. */
CARVE_API int carve_gpu_list_json(carve_t *carve, char **ret_json);
/* The sessions, as `carve session list --json` prints them. */
CARVE_API int carve_session_list_json(carve_t *carve, char **ret_json);
/* One session, as `carve session show --json` prints it. */
CARVE_API int carve_session_show_json(carve_t *carve, const char *id, char **ret_json);

/* A slice to ask for. Set `size` to sizeof(carve_request_t), leave what you don't need zeroed. Give
 * exactly one of the four sizes:
 *
 *	carve_request_t request = {.size = sizeof(request), .vram = "4", .wait_for = 60};
 *
 * Later versions append fields; zero will mean there what it means today. A library older than the
 * program refuses fields that it doesn't know, unless they are zero. */
typedef struct carve_request {
	size_t size;
	/* the size of the slice, on each of its GPUs */
	const char *vram;       /* as --vram: "4" (GiB), "2560MiB" */
	const char *gpu_memory; /* as --gpu-memory: "4G", "4Gi" */
	const char *gpu;        /* as --gpu: "0.25", "2" */
	uint64_t vram_bytes;
	/* where, and what else */
	const char *gpu_compute; /* as --gpu-compute: "25%", "0.25" */
	const char *gpu_ids;     /* only of these: "0,1", "0-2", "all" */
	const char *name;        /* usable wherever an ID is; none: the current session */
	double wait_for;         /* seconds to wait for room at most; the call blocks so long */
	double timeout;          /* seconds after which the session ends by itself; 0: none */
	unsigned gpus;           /* on so many GPUs; 0: one */
	int priority;  /* the place in the line of waiting requests, -100 to 100; above 0 is for
			  administrators */
	int ephemeral; /* not 0: ends with this process, unless others are inside */
	int strict;    /* not 0: all or nothing, without the 93% rule */
} carve_request_t;

/* Reserves a slice; *ret_json is the session. CARVE_E_NO_ROOM: there was no room in time. Where the
 * daemon dies meanwhile and another one takes over, the same request is made there, not a second
 * one. */
CARVE_API int carve_session_request_with(carve_t *carve, const carve_request_t *request,
					 char **ret_json);
/* The same with a size as --vram takes it and seconds to wait for room alone. */
CARVE_API int carve_session_request(carve_t *carve, const char *vram, unsigned wait_seconds,
				    char **ret_json);
/* Makes a session larger or smaller, also with processes inside; `size` has one of the four sizes
 * and nothing else. *ret_json is the session after it. Fails where there is no room, or where more
 * is in use; the session is then as it was. */
CARVE_API int carve_session_resize(carve_t *carve, const char *id, const carve_request_t *size,
				   char **ret_json);

/* Ends the processes inside first: SIGTERM, after 3 s SIGKILL. */
#define CARVE_RELEASE_FORCE 1u

/* Ends a session, or withdraws a request that waits. Refused while processes are inside, but for
 * CARVE_RELEASE_FORCE in `flags` (0 otherwise). */
CARVE_API int carve_session_release_with(carve_t *carve, const char *id, unsigned flags);
/* The same without flags. */
CARVE_API int carve_session_release(carve_t *carve, const char *id);

/* Tells what would become of a request now, GPU by GPU: as `carve explain --json` prints it.
 * Nothing is reserved; that it would be refused is an answer, not an error. */
CARVE_API int carve_explain_json(carve_t *carve, const carve_request_t *request, char **ret_json);
/* Why a request waits, or where a session was granted. */
CARVE_API int carve_session_explain_json(carve_t *carve, const char *id, char **ret_json);

#ifdef __cplusplus
}
#endif

#endif
