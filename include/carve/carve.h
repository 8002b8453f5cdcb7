/* carve's client interface for C: what the `carve` command does, for programs.
 *
 * A connection is used by one thread at a time; several connections may be used by several threads.
 * Functions that return int return 0, or one of the CARVE_E codes, and then carve_error_message()
 * and carve_error_hint() say what was wrong. Answers are JSON text in the forms of `carve --json`.
 */
#ifndef CARVE_CARVE_H
#define CARVE_CARVE_H

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

/* Connects to the daemon at the socket `host`; where that is NULL, as the command does: to
 * $CARVE_HOST, to the system's daemon, or to the user's own, which is started where it does not
 * run. A connection is returned in *ret even on failure, for the error's text, unless memory ran
 * out (then NULL). */
CARVE_API int carve_connect(const char *host, carve_t **ret);
/* NULL is allowed. */
CARVE_API void carve_close(carve_t *carve);

/* The last error of this connection, one line each; "" where there is none. Valid until the next
 * call. */
CARVE_API const char *carve_error_message(const carve_t *carve);
CARVE_API const char *carve_error_hint(const carve_t *carve);

/* The GPUs, as `carve gpu list --json` prints them. The caller frees *ret_json. */
CARVE_API int carve_gpu_list_json(carve_t *carve, char **ret_json);
/* The sessions, as `carve session list --json` prints them. The caller frees *ret_json. */
CARVE_API int carve_session_list_json(carve_t *carve, char **ret_json);
/* Reserves a slice: `vram` as --vram takes it ("4", "2560MiB"); wait at most `wait_seconds` for
 * room. *ret_json is the session, as `carve session show --json` prints it. The caller frees it. */
CARVE_API int carve_session_request(carve_t *carve, const char *vram, unsigned wait_seconds,
				    char **ret_json);
/* Ends a session. */
CARVE_API int carve_session_release(carve_t *carve, const char *id);

#ifdef __cplusplus
}
#endif

#endif
