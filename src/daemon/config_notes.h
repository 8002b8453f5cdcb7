/* Notes on a right configuration: users, groups, files and a directory that it names and this
 * machine does not have. They may come later, so a note refuses no configuration. */
#pragma once

#include <stdbool.h>

struct config;

/* Bytes of a note, its end included. */
#define CONFIG_NOTE_SIZE 512

typedef void (*config_note_cb)(void *arg, const char *text);

/* Calls cb(arg, text) for each note. `user` is the user of the service, which is to write in the
 * directory: then users and groups are asked of directory servers, and root looks at files as the
 * users of the services. NULL: this process is the daemon, which waits for no server. The names
 * of exemptions are then left to config_note_name(). */
void config_notes(const struct config *config, const char *user, config_note_cb cb, void *arg);
/* Gives the note for a name of `idle_exempt`, or of `outside_exempt`, that is not known. */
void config_note_name(bool idle, bool group, const char *name, char ret[static CONFIG_NOTE_SIZE]);
