#include "daemon/host/unrecorded.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "daemon/host/limited.h"

static const char *why(int rc)
{
	switch (rc) {
	case -ENOSPC:
		return "the disk is full";
	case -EFBIG:
		return LIMITED_FILE_SIZE_TEXT;
	case -EROFS:
		return "the database cannot be written";
	case -EUCLEAN:
		return "the database is damaged";
	case -ESRCH:
		return "the process that asked has ended";
	case -EMFILE:
		return limited_descriptors_text("this user has too many commands in slices");
	default:
		return strerrordesc_np(-rc);
	}
}

int unrecorded_set(struct error *err, const char *what, int rc)
{
	error_set(err, EXIT_CODE_FAILED, "%s: %s", what, why(rc));
	if (rc == -ENOSPC)
		error_hint(err, "`carve check` says which, and root makes room there");
	return -EXIT_CODE_FAILED;
}
