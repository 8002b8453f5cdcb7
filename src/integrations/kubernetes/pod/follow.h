/* Whether anybody still follows the pod of a job. `carve-kubernetes run` renews a mark on its pod,
 * and the controller deletes pods whose mark stands still. Clocks of hosts are not compared: a mark
 * only has to change. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "integrations/kubernetes/api/api.h"

struct error;

/* An annotation: "TIME/SECONDS", when the mark was renewed by the clock of its host (seconds since
 * 1970), and how many seconds pass until it is renewed. Pods without it are nobody's to delete. */
#define FOLLOW_MARK "carve.dev/followed"
/* 1,000 pods make some 3 small calls a second so. */
#define FOLLOW_SECONDS 300
#define FOLLOW_SECONDS_MAX 86400
/* A host that is away for a night or over a weekend's day still finds its pods. */
#define FOLLOW_GONE_SECONDS 86400
/* A mark that stands still for fewer of its own intervals is not taken for left. */
#define FOLLOW_INTERVALS 3

/* The state of following one pod; for one thread. */
struct follow {
	struct api *api;
	const char *pod;  /* its path */
	unsigned every_s; /* 0: never */
	long long next_ms;
};

/* Renews the mark where that is due. A failure is no reason to end: an account without the right to
 * patch pods leaves no mark. */
void follow_renew(struct follow *follow);

/* The interval that a mark names. False: it is none. */
bool follow_mark_read(const char *mark, uint64_t *ret_interval_s);

/* Pods that nobody follows. For one thread. */
struct orphans {
	struct api *api;
	uint64_t gone_s; /* a mark that stood still for so long is left; 0: none ever is */
	bool (*goes_on)(void *arg);
	void *arg;
	json_t *seen; /* {UID: [mark, since ms]}; NULL at first */
};

/* Looks at all pods of jobs, and deletes those whose mark has stood still since earlier looks. 0,
 * or negative with *err: then nothing is deleted. */
int orphans_look(struct orphans *orphans, struct error *err);
