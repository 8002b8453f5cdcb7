/* One command as a pod: the process of a queue's job, whose output is the pod's log and whose exit
 * code is the container's. */
#pragma once

struct error;

struct run_options {
	const char *namespace;
	const char *pod_template; /* file with a pod or a pod template, JSON; NULL: none */
	const char *image;        /* NULL: the template's */
	const char *fraction;     /* of a GPU, or a number of whole ones; NULL: the template's */
	const char *job;          /* of a queue of carve's, a label of the pod; NULL: none */
	char *const *command;     /* ended by NULL; empty: the template's */
	const char *api_url, *token, *ca; /* api_open() */
};

/* Makes the pod, follows its log to standard output, and deletes it when it has ended, or this
 * process gets SIGTERM, SIGINT or SIGHUP. Returns the exit code (128 and the signal's number where
 * it got one), or negative with *err. */
int run_pod(const struct run_options *options, struct error *err);
