#include "base/file.h"
#include "cli/cli.h"
#include "slice/relay.h"

int main(int argc, char **argv)
{
	standard_descriptors_hold();
	relay_prepare();
	return cli_main(argc, argv);
}
