/* The host's process: one thread that answers connections and lets the model's time pass. */
#pragma once

struct host;
struct server;

/* Listens on driver.sock in `directory`. 0 or -errno; the caller owns *ret. The host stays the
 * caller's and must outlive it. */
int server_new(struct host *host, const char *directory, struct server **ret);
/* Serves until the other end of stop_fd is closed. 0 or -errno. */
int server_run(struct server *s, int stop_fd);
/* Closes every connection; NULL is fine. */
void server_free(struct server *s);
