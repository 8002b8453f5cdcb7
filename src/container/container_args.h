/* The command line of a container runtime's `run`, taken apart: carve's options are taken out, all
 * else stays as it was written. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct error;

/* A growing list of words; NULL-terminated once something was added. Words are owned. */
struct words {
	char **list;
	size_t count, room;
};

/* Memory that runs out ends the program: it has not begun anything yet. */
void words_add(struct words *words, const char *format, ...) __attribute__((format(printf, 2, 3)));
void words_free(struct words *words);

struct container_args {
	struct words slice;   /* carve's options */
	struct words global;  /* the runtime's, before `run` */
	struct words options; /* the runtime's, before the image */
	/* Those of both that each command of the runtime's needs to find the container: podman
	 * takes --root in both places. */
	struct words everywhere;
	char **image;         /* into what was given: the image, and its command */
	const char *cid_file; /* the user's own --cidfile; NULL */
	const char *pid_file; /* --pidfile; likewise */
};

/* The program and place of options, which decide which of them take a value: behind `run`, and
 * before it. */
enum container_syntax {
	CONTAINER_SYNTAX_OCI,
	CONTAINER_SYNTAX_APPTAINER,
	CONTAINER_SYNTAX_PODMAN_GLOBAL,
	CONTAINER_SYNTAX_DOCKER_GLOBAL,
	CONTAINER_SYNTAX_APPTAINER_GLOBAL,
};
/* Before the verb of "podman", "docker" or "apptainer". False: it is none of these. */
bool container_syntax_global(const char *runtime, enum container_syntax *ret);
/* How many words before the verb are options and their values: words[n] is the verb, or NULL. */
size_t container_args_global_count(char **words, enum container_syntax syntax);

/* `global`, `global_count`: what stands before `run`; `given`: behind it. Ends at the image. 0, or
 * negative with *err set: there is no image, or an option of carve's lacks its value. */
int container_args_read(char **global, size_t global_count, enum container_syntax global_syntax,
			char **given, enum container_syntax syntax, struct container_args *ret,
			struct error *err);
/* Whether the word after an option of the runtime's is its value. */
bool container_args_takes_next(const char *word, enum container_syntax syntax);
/* Whether `run` or `exec` of podman 5, docker 28 or apptainer 1.4 has an option of that name, which
 * has no dashes: "env", or "e". */
bool container_args_known(const char *name, size_t length);
/* The names of carve's options that have a value, without their dashes; NULL: there are no more. */
const char *container_args_own(size_t i);
void container_args_free(struct container_args *args);
