/* The daemon's settings in force: those of its configuration file, or the built-in ones. */
#pragma once

struct json_t;
struct node;

/* Begins: the state directory is open. Copies the file for a start whose file is wrong. */
void settings_begin(struct node *node);
/* Gives the rooms their settings. */
void settings_spread(struct node *node);
/* Reads the file again. A file that is wrong changes nothing. */
void settings_reload(struct node *node);
/* A new array of texts: what the settings name and this machine does not have (config_notes.h).
 * Files are as the last start or reload found them. */
struct json_t *settings_notes(const struct node *node);
