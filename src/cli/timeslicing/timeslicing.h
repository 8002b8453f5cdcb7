/* Shared by the verbs of `carve timeslicing`. */
#pragma once

struct cli;
struct error;
struct lease_setting;

/* Puts what --mode, --lease and --granularity say, where they are given, into *setting. 0, or
 * negative with *err set. */
int timeslicing_setting_read(const struct cli *cli, struct lease_setting *setting,
			     struct error *err);
