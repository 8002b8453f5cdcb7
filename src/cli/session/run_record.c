#include "cli/session/run_record.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/text_escape.h"
#include "cli/cli.h"
#include "client/client.h"

/* The daemon takes as many bytes. */
#define COMMAND_MOST 255

bool run_record_wanted(const struct cli *cli)
{
	const char *setting = secure_getenv("CARVE_RECORD_COMMAND");

	return cli->value[OPT_RECORD_COMMAND] || (setting && !strcmp(setting, "1"));
}

static bool is_plain(const char *word)
{
	return *word && !word[strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
					   "0123456789_@%+=:,./-")];
}

static void word_add(char *text, size_t size, const char *word)
{
	size_t used = strlen(text);

	snprintf(text + used, size - used, is_plain(word) ? "%s%s" : "%s'%s'", used ? " " : "",
		 word);
}

/* The words of the command as they were typed, or nearly so. A text that is too long is cut behind
 * a whole character. */
static void command_text(char *const *argv, char ret[static COMMAND_MOST + 1])
{
	char words[4 * COMMAND_MOST] = "", escaped[sizeof(words) * TEXT_ESCAPE_SIZE + 1];

	for (; *argv && strlen(words) < COMMAND_MOST; argv++)
		word_add(words, sizeof(words), *argv);
	text_escape(words, true, escaped);
	size_t length = strlen(escaped);
	if (length > COMMAND_MOST) {
		length = COMMAND_MOST - 3;
		while (length && ((unsigned char)escaped[length] & 0xc0) == 0x80)
			length--;
		memcpy(escaped + length, "...", sizeof("..."));
	}
	snprintf(ret, COMMAND_MOST + 1, "%s", escaped);
}

int64_t run_record_begin(const struct client *client, const char *session, char *const *argv)
{
	char text[COMMAND_MOST + 1];
	struct error err = {0};
	cleanup_json json_t *answer = NULL;

	command_text(argv, text);
	cleanup_json json_t *body = json_pack("{s:s, s:s}", "session", session, "command", text);
	if (!body ||
	    client_call(client, "POST", "/v1/commands/recorded", body, NULL, &answer, &err) < 0) {
		fprintf(stderr, "carve: warning: the command is not recorded: %s\n", err.message);
		return 0;
	}
	return json_integer_value(json_object_get(answer, "number"));
}

void run_record_end(const struct client *client, int64_t number, int status)
{
	char path[64];
	struct error ignored = {0};
	cleanup_json json_t *answer = NULL;
	cleanup_json json_t *body = json_pack("{s:i}", "exit_code", MAX(status, 0) & 255);

	if (!number || !body)
		return;
	snprintf(path, sizeof(path), "/v1/commands/recorded/%" PRId64, number);
	(void)client_call(client, "PATCH", path, body, NULL, &answer, &ignored);
}
