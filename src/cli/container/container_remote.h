/* A runtime that runs its containers on another host: a slice is of this host's GPUs. */
#pragma once

struct container_args;
struct error;

/* 0: they run here, as far as the command line, the environment and docker's context tell, and
 * docker's daemon answers. Negative with *err set. `runtime`: podman, docker, or another. */
int container_remote_check(const char *runtime, const struct container_args *args,
			   struct error *err);
