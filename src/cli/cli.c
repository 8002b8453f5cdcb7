#include "cli/cli.h"
int cli_main(int argc, char **argv)
{
	return 1;
}
