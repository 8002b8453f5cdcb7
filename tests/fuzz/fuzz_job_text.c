/* Texts of jobs (proto/job_text.h): any JSON is taken whole, or refused with one line. */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "proto/job_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_taken(const struct job_text *text)
{
	char name[JOB_TEXT_NAME_SIZE];
	size_t i;
	json_t *word;

	if (text->sweep > JOB_TEXT_SWEEP_MAX || strlen(text->image) >= JOB_TEXT_IMAGE_SIZE ||
	    (*text->cwd && *text->cwd != '/'))
		abort();
	json_array_foreach((json_t *)text->argv, i, word)
	{
		if (!json_string_value(word))
			abort();
	}
	job_text_name(text, name);
	for (const char *at = name; *at; at++)
		if ((unsigned char)*at <= ' ' || *at == '/')
			abort();
	if (text->argv && !*name)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	json_t *root = json_loadb((const char *)data, size, 0, NULL);
	struct job_text text;
	struct error err = {0};

	if (!root)
		return 0;
	if (job_text_read(root, &text, &err) == 0)
		check_taken(&text);
	else if (err.code != EXIT_CODE_USAGE || !err.message[0])
		abort();
	json_decref(root);
	return 0;
}
