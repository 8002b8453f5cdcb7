/* A door: a program that the network reaches, and that asks carved at its Unix socket.
 * carve-metrics and carve-web are doors. They have in common what is here: the configuration and
 * its files, listening, visitors (connections), TLS, and the bounds of all that. A struct door_kind
 * says what is different. One thread, one loop; nothing waits.
 *
 * A struct of the program begins with its struct door, and a struct of a connection begins with its
 * struct visitor. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <uv.h>

#include "daemon/doors/door_config.h"

struct door;
struct error;
struct tls;
struct tls_session;

#define DOOR_TOKEN_MAX 512u

/* Why visitors were refused. */
enum refusal {
	REFUSED_TOKEN,       /* it brought none, or a wrong one */
	REFUSED_CERTIFICATE, /* it brought none */
	REFUSED_HANDSHAKE,   /* no TLS, or a certificate that client_ca did not sign */
	REFUSED_FULL,        /* its connection had to go for a newer one */
	REFUSED_SLOW,        /* nothing moved, or no proof came in time */
	REFUSALS,
};

/* A connection to the TCP socket. */
struct visitor {
	struct door *door;
	struct visitor *next, *previous; /* the newest first */
	int fd;
	uv_poll_t poll;
	struct tls_session *tls; /* NULL: it speaks plain TCP */
	bool shaken;             /* the handshake is done, or there is none */
	bool proved;             /* it is somebody who may see something */
	uint64_t opened_ns, moved_ns;
	unsigned char origin[16]; /* where it comes from: an address, or a network of IPv6 */
};

struct door_kind {
	const char *key;   /* the key of the configuration; the program is "carve-KEY" */
	const char *help;  /* the whole text */
	const char *unset; /* says what is so where KEY.listen is not set */
	/* Reads the key's value. 0, or negative with *err. */
	int (*config_read)(const json_t *value, struct door_config *ret, struct error *err);
	size_t visitor_size;
	bool signs_in; /* visitors prove who they are by what they ask */
	/* Visitors at a time, in all and from one origin other than this host. One more takes the
	 * place of the oldest that has not proved who it is. */
	unsigned visitors_max, origin_max;
	uint64_t proof_ns; /* a visitor that has not proved who it is ends after this time */
	/* Before the loop runs, after it was told to stop, and after it has ended. 0 or -errno. */
	int (*start)(struct door *door);
	void (*stop)(struct door *door);
	void (*free)(struct door *door);
	void (*tick)(struct door *door); /* each second */
	/* The visitor is in, and its socket can be read or written; visitor_await() says for what
	 * is waited next. It may end the visitor. */
	void (*visitor_go_on)(struct visitor *visitor);
	void (*visitor_gone)(struct visitor *visitor);
	/* Each second. Whether it has lasted long enough: it ends. */
	bool (*visitor_is_over)(struct visitor *visitor, uint64_t now);
};

struct door {
	const struct door_kind *kind;
	uv_loop_t loop;
	const char *config_path, *socket;
	struct door_config config;
	char token[DOOR_TOKEN_MAX];
	size_t token_size;
	struct tls *tls; /* NULL: it speaks plain HTTP, on loopback */
	int listen_fd;
	uv_poll_t listener;
	uv_timer_t tick; /* each second */
	uv_signal_t on_term, on_int, on_hup;
	uint64_t looked_ns; /* when files were looked at for changes */
	int64_t files_changed;
	struct visitor *visitors; /* the newest first */
	unsigned visitor_count;
	uint64_t refused[REFUSALS];
	bool stopping, begins_anew;
};

/* The whole program. Returns its exit status. */
int door_main(struct door *door, int argc, char **argv);
/* Reads the configuration, the token and the certificates. 0; negative with *err, and all is as it
 * was. */
int door_load(struct door *door, struct error *err);
/* Listens until it is told to end. 0; 1: it is to begin anew, as it is to listen elsewhere;
 * negative with *err. */
int door_run(struct door *door, struct error *err);
/* A connection to carved's socket, which does not block. The descriptor, or -errno: -EPERM where
 * the socket is neither root's nor this user's. */
int door_connect(const struct door *door);
