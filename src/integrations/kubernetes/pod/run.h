/* One command as a pod: the process of a queue's job, whose output is the pod's log and whose exit
 * code is the container's. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct error;

struct run_options {
	const char *namespace;
	const char *pod_template; /* file: pod_template.h; NULL: none */
	const char *image;        /* NULL: the template's */
	const char *fraction;     /* the fraction of a GPU, or a number of whole ones; NULL: the
				     template's */
	const char *gpu_memory;   /* MiB of each GPU, in place of `fraction` */
	const char *job, *queue;  /* the job and its queue in carve; NULL: none */
	/* The pod's, which a later call with the same state file takes up; NULL: a random one, and
	 * nothing is taken up. */
	const char *name;
	const char *state_file; /* proto/shim.h, SHIM_POD_STATE; NULL: none */
	bool log_anew;          /* standard output, a file, is emptied before the log is printed */
	unsigned follow_s;      /* follow.h, every_s */
	long grace_s; /* the time to end where a signal asks for it; negative: the pod's own */
	const char *env[64]; /* NAME=VALUE of the first container, beside the template's */
	size_t env_count;
	char *const *command;             /* ended by NULL; empty: the template's */
	const char *api_url, *token, *ca; /* api_open() */
};

/* Makes the pod, or takes it up, follows its log to standard output, and deletes it when it has
 * ended, or this process gets SIGTERM, SIGINT or SIGHUP. Returns the exit code (128 and the
 * signal's number where it got one), or negative with *err. */
int run_pod(const struct run_options *options, struct error *err);
/* Reads the template, has the API server check a pod of each of its queues where one is named and
 * answers, and prints the template as JSON. Returns the exit code, or negative with *err. */
int run_template(const struct run_options *options, struct error *err);
