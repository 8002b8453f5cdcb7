/* The notice of the administrators, which each user is shown once. */
#pragma once

struct cli;

/* Prints the notice on standard error where the user has not been shown it, before the command does
 * its work. It is shown only where standard error is a terminal, and not with --json. So no script
 * and no log takes the notice for the user. A daemon that does not run or does not answer is none
 * of its business. */
void notice_show_once(const struct cli *cli);
