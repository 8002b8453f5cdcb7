/* The environment by which a process knows its slice; proto/attach.h. */
#pragma once

struct driver_libs;
struct error;
struct places;

/* The ID of the slice that this process runs in, or NULL. */
const char *slice_env_session(void);
/* Puts this process's environment into session `id`: for a child before exec. `stamp` is the
 * session's ("": not known), and `attach` is the path of its attach socket. 0, or negative with
 * *err set. */
int slice_env_enter(const char *id, const char *stamp, const char *attach,
		    const struct places *places, const struct driver_libs *driver,
		    struct error *err);
/* Takes this process's environment out of any slice. The user's own preloads stay. */
void slice_env_leave(const struct places *places);
