/* A size of the command line as a label of a container or an image: carve.vram=8GiB. */
#pragma once

struct cli;
struct error;

#define SIZE_LABEL_SIZE 64

struct size_label {
	char name[32]; /* "carve.vram" */
	char value[SIZE_LABEL_SIZE];
};

/* 0, or negative with *err set: there is no size, or a wrong one. */
int size_label_read(const struct cli *cli, struct size_label *ret, struct error *err);
