#include "integrations/door/tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/macros.h"
#include "daemon/doors/door_config.h"

struct tls {
	SSL_CTX *context;
	bool asks; /* for a certificate */
};

struct tls_session {
	SSL *ssl;
	bool asked;
};

static int tls_error(struct error *err, const char *of, const char *key, const char *path)
{
	char why[160] = "it cannot be used";
	unsigned long code = ERR_peek_last_error();

	if (code)
		ERR_error_string_n(code, why, sizeof(why));
	ERR_clear_error();
	return error_set(err, EXIT_CODE_USAGE, "%s.tls.%s: %.200s: %s", of, key, path, why);
}

/* A key that has a passphrase is not asked for one. */
static int on_passphrase(char *buf, int size, int writes, void *arg)
{
	return -1;
}

static int files_load(SSL_CTX *context, const struct door_config *config, const char *of,
		      struct error *err)
{
	if (SSL_CTX_use_certificate_chain_file(context, config->cert) != 1)
		return tls_error(err, of, "cert", config->cert);
	if (SSL_CTX_use_PrivateKey_file(context, config->key, SSL_FILETYPE_PEM) != 1 ||
	    SSL_CTX_check_private_key(context) != 1)
		return tls_error(err, of, "key", config->key);
	if (!config->client_ca[0])
		return 0;
	STACK_OF(X509_NAME) *names = SSL_load_client_CA_file(config->client_ca);
	if (!names || SSL_CTX_load_verify_file(context, config->client_ca) != 1) {
		sk_X509_NAME_pop_free(names, X509_NAME_free);
		return tls_error(err, of, "client_ca", config->client_ca);
	}
	SSL_CTX_set_client_CA_list(context, names);
	/* A reader without a certificate gets an answer of HTTP. */
	SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
	return 0;
}

int tls_new(const struct door_config *config, const char *of, struct tls **ret, struct error *err)
{
	SSL_CTX *context = SSL_CTX_new(TLS_server_method());
	struct tls *tls = calloc(1, sizeof(*tls));

	if (!context || !tls) {
		SSL_CTX_free(context);
		free(tls);
		return error_set(err, EXIT_CODE_FAILED, "out of memory");
	}
	SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
	SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
					     SSL_OP_NO_TICKET | SSL_OP_CIPHER_SERVER_PREFERENCE |
					     SSL_OP_IGNORE_UNEXPECTED_EOF);
	SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE |
					  SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
					  SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_default_passwd_cb(context, on_passphrase);
	int rc = files_load(context, config, of, err);
	if (rc < 0) {
		SSL_CTX_free(context);
		free(tls);
		return rc;
	}
	tls->context = context;
	tls->asks = config->client_ca[0] != '\0';
	*ret = tls;
	return 0;
}

void tls_free(struct tls *tls)
{
	if (tls)
		SSL_CTX_free(tls->context); /* its sessions have counted themselves in */
	free(tls);
}

struct tls_session *tls_session_new(struct tls *tls, int fd)
{
	struct tls_session *s = calloc(1, sizeof(*s));

	if (s)
		s->ssl = SSL_new(tls->context);
	if (!s || !s->ssl || SSL_set_fd(s->ssl, fd) != 1) {
		tls_session_free(s);
		return NULL;
	}
	SSL_set_accept_state(s->ssl);
	s->asked = tls->asks;
	return s;
}

void tls_session_free(struct tls_session *s)
{
	if (s)
		SSL_free(s->ssl);
	free(s);
}

/* The -errno of a result of OpenSSL that is no success. */
static int outcome(struct tls_session *s, int result, bool *writes)
{
	int error = SSL_get_error(s->ssl, result);

	ERR_clear_error();
	*writes = error == SSL_ERROR_WANT_WRITE;
	if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
		return -EAGAIN;
	return error == SSL_ERROR_ZERO_RETURN ? 0 : -EPROTO;
}

int tls_session_shake(struct tls_session *s, bool *writes)
{
	ERR_clear_error();
	int result = SSL_accept(s->ssl);
	int rc = result == 1 ? 0 : outcome(s, result, writes);

	return result != 1 && rc == 0 ? -EPROTO : rc;
}

bool tls_session_proved(const struct tls_session *s)
{
	X509 *certificate = s->asked ? SSL_get0_peer_certificate(s->ssl) : NULL;

	return certificate && SSL_get_verify_result(s->ssl) == X509_V_OK;
}

ssize_t tls_session_read(struct tls_session *s, void *data, size_t size, bool *writes)
{
	ERR_clear_error();
	int result = SSL_read(s->ssl, data, (int)MIN(size, 1u << 20));

	return result > 0 ? result : outcome(s, result, writes);
}

ssize_t tls_session_write(struct tls_session *s, const void *data, size_t size, bool *writes)
{
	ERR_clear_error();
	int result = SSL_write(s->ssl, data, (int)MIN(size, 1u << 20));

	return result > 0 ? result : outcome(s, result, writes);
}
