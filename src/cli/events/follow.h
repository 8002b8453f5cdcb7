/* Reads something that the daemon numbers, ends of jobs or events, from a number on, for ever:
 * prints each, or tells it to a command and to a URL. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct cli;
struct error;

/* The items that a verb reads. */
struct follow_source {
	const char *verb;        /* "job events" */
	const char *path;        /* in the daemon's API: "/v1/jobs/ends" */
	const char *filters;     /* arguments of each request: "&kind=quota.set", or "" */
	const char *list;        /* the name of the list in an answer: "ends" */
	const char *one;         /* "end" */
	const char *many;        /* "ends" */
	const char *store;       /* where the daemon keeps them: "database of jobs" */
	const char *cursor_file; /* in the user's state directory: "events.json" */
	/* Sets variables in the environment of the command. */
	void (*environment)(const json_t *item);
	/* "the end of job 17, failed". Returns buf. */
	const char *(*name)(const json_t *item, char *buf, size_t size);
	/* 0, or negative with *err. */
	int (*print)(const struct cli *cli, const json_t *item, struct error *err);
};

/* Follows by the options of the command line: --from, --exec, --webhook, --exec-timeout and
 * --cursor-file. Returns where it cannot go on: negative with *err. */
int follow(const struct cli *cli, const struct follow_source *source, struct error *err);
/* Whether one of these options is given, or its variable. */
bool follow_is_asked(const struct cli *cli);
