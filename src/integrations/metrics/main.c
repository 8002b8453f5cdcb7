#include "integrations/metrics/exporter.h"

int main(int argc, char **argv)
{
	return door_main(&exporter_program.door, argc, argv);
}
