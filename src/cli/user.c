#include "cli/user.h"

#include <pwd.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

int user_find(const char *text, uid_t *ret, struct error *err)
{
	struct passwd entry, *found = NULL;
	char buf[4096], *end;
	unsigned long number = strtoul(text, &end, 10);

	if (getpwnam_r(text, &entry, buf, sizeof(buf), &found) == 0 && found) {
		*ret = found->pw_uid;
		return 0;
	}
	if (*text && strspn(text, "0123456789") == strlen(text) && number < (uid_t)-1) {
		*ret = (uid_t)number;
		return 0;
	}
	error_set(err, EXIT_CODE_USAGE, "--user: there is no user '%.64s'", text);
	error_hint(err, "name a user of this machine, or give the number of the user");
	return -EXIT_CODE_USAGE;
}
