/* Shared by the files of carve-metrics. One thread, one loop. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <uv.h>

#include "daemon/metrics/metrics_config.h"
#include "integrations/metrics/request.h" /* for the size of a token */

struct error;
struct reader;
struct tls;
struct upstream;

/* Connections at a time. One more takes the place of the oldest that has not proved who it is. */
#define READERS_MAX 64u
/* A connection on which nothing moves for this long ends; so does one that has not proved who it is
 * after this time. Prometheus keeps its connection between two scrapes. */
#define READER_SILENCE_NS 90000000000ull
#define READER_PROOF_NS 10000000000ull
#define TOKEN_MAX REQUEST_TOKEN_MAX

/* Why readers were refused. */
enum refusal {
	REFUSED_TOKEN,       /* it brought none, or a wrong one */
	REFUSED_CERTIFICATE, /* it brought none */
	REFUSED_HANDSHAKE,   /* no TLS, or a certificate that client_ca did not sign */
	REFUSED_FULL,        /* its connection had to go for a newer one */
	REFUSED_SLOW,        /* nothing moved, or no proof came in time */
	REFUSALS,
};

struct exporter {
	uv_loop_t loop;
	const char *config_path, *socket;
	struct metrics_config config;
	char token[TOKEN_MAX];
	size_t token_size;
	struct tls *tls; /* NULL: it speaks plain HTTP, on loopback */
	int listen_fd;
	uv_poll_t listener;
	uv_timer_t tick; /* each second */
	uv_signal_t on_term, on_int, on_hup;
	uint64_t looked_ns; /* when files were looked at for changes */
	int64_t files_changed;
	struct reader *readers; /* the newest first */
	unsigned reader_count;
	struct upstream *upstream;
	uint64_t scrapes, refused[REFUSALS], unanswered;
	bool stopping, begins_anew;
};

/* Reads the configuration, the token and the certificates. 0; negative with *err, and all is as it
 * was. */
int exporter_load(struct exporter *exporter, struct error *err);
/* Listens until it is told to end. 0; 1: it is to begin anew, as it is to listen elsewhere;
 * negative with *err. */
int exporter_run(struct exporter *exporter, struct error *err);
