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
	struct words options; /* the runtime's, before the image */
	char **image;         /* into what was given: the image, and its command */
	const char *cid_file; /* the user's own --cidfile; NULL */
	const char *pid_file; /* --pidfile; likewise */
};

/* Whose options they are: which of them take a value. */
enum container_syntax { CONTAINER_SYNTAX_OCI, CONTAINER_SYNTAX_APPTAINER };

/* `given`: what stands behind `run`. Ends at the image. 0, or negative with *err set: there is no
 * image, or an option of carve's lacks its value. */
int container_args_read(char **given, enum container_syntax syntax, struct container_args *ret,
			struct error *err);
/* Whether the word after an option of the runtime's is its value. */
bool container_args_takes_next(const char *word, enum container_syntax syntax);
/* The names of carve's options that have a value, without their dashes; NULL: there are no more. */
const char *container_args_own(size_t i);
void container_args_free(struct container_args *args);
