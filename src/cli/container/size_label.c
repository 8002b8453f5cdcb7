#include "cli/container/size_label.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/error.h"
#include "cli/cli.h"
#include "cli/session/slice_request.h"
#include "container/wanted.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static void bytes_text(uint64_t bytes, char buf[static SIZE_LABEL_SIZE])
{
	uint64_t unit = bytes % GIB == 0 ? GIB : bytes % MIB == 0 ? MIB : 1;

	snprintf(buf, SIZE_LABEL_SIZE, "%" PRIu64 "%s", bytes / unit,
		 unit == GIB   ? "GiB"
		 : unit == MIB ? "MiB"
			       : "B");
}

int size_label_read(const struct cli *cli, struct size_label *ret, struct error *err)
{
	cleanup_request struct slice_request request = {0};
	int rc = slice_request_read(cli, &request, err);
	const char *text = cli->value[OPT_GPU] ? cli->value[OPT_GPU] : cli->value[OPT_MIG_PROFILE];

	if (rc < 0)
		return rc;
	if (!request.sized)
		return slice_request_unsized(cli->verb->name, err);
	if (request.place.bytes)
		bytes_text(request.place.bytes, ret->value);
	else if (snprintf(ret->value, sizeof(ret->value), "%s", text) >= (int)sizeof(ret->value))
		return error_set(err, EXIT_CODE_USAGE, "'%.64s' is too long a size", text);
	snprintf(ret->name, sizeof(ret->name), CONTAINER_LABEL_PREFIX "%s",
		 request.place.bytes   ? "vram"
		 : cli->value[OPT_GPU] ? "gpu"
				       : "mig-profile");
	return 0;
}
