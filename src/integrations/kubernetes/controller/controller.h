/* The controller of a cluster: makes the ResourceClaimTemplates that pods name. */
#pragma once

struct error;

struct controller_options {
	const char *namespace; /* the namespace of its Lease */
	const char *driver;
	unsigned collect_s; /* templates that no pod names are deleted so often; not 0 */
	unsigned gone_s; /* pods of jobs that nobody follows are deleted after so long; 0: never */
	const char *api_url, *token, *ca; /* api_open() */
};

/* Acts while it holds the lease, until SIGTERM or SIGINT, or until it loses the lease (then it
 * fails, to be started again). 0, or negative with *err. */
int controller_run(const struct controller_options *options, struct error *err);
