/* TLS of a connection, by OpenSSL, without waiting (docs/dev/adr/0029-tls.md). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct error;
struct door_config;
struct tls;         /* certificate, key, and whom it believes */
struct tls_session; /* one connection's */

/* Reads the files that the configuration names under the key `of`. 0 or negative with *err. */
int tls_new(const struct door_config *config, const char *of, struct tls **ret, struct error *err);
/* Takes NULL. Sessions that use it go on. */
void tls_free(struct tls *tls);
/* The socket stays the caller's. NULL: no memory. */
struct tls_session *tls_session_new(struct tls *tls, int fd);
/* Takes NULL. */
void tls_session_free(struct tls_session *session);
/* Goes on with the handshake. 0: it is done; -EAGAIN: when the socket can be read, or written
 * (*writes), it goes on; another -errno: it failed. */
int tls_session_shake(struct tls_session *session, bool *writes);
/* Whether the other side showed a certificate that `client_ca` has signed. */
bool tls_session_proved(const struct tls_session *session);
/* Like recv() and send(): a number of bytes, 0: the other side has ended; -EAGAIN as above; another
 * -errno. */
ssize_t tls_session_read(struct tls_session *session, void *data, size_t size, bool *writes);
ssize_t tls_session_write(struct tls_session *session, const void *data, size_t size, bool *writes);
