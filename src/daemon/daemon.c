#include "daemon/daemon.h"
int daemon_main(int argc, char **argv)
{
	return 1;
}
