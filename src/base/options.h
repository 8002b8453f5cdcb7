/* The long options of a program, and one line about the first that is wrong. */
#pragma once

#include <getopt.h>

struct error;

/* getopt_long() without messages of its own: '?' of every mistake, and *err says which. */
int options_next(int argc, char **argv, const struct option *options, struct error *err);
