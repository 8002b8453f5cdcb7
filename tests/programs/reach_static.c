/* A launcher that ld.so has no part in: linked statically, it starts ARGV[1...] with the
 * environment it has, or with --empty with none. */
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	char *none[] = {NULL};
	int empty = argc > 1 && strcmp(argv[1], "--empty") == 0;

	if (argc < 2 + empty)
		return 2;
	execve(argv[1 + empty], argv + 1 + empty, empty ? none : environ);
	return 127;
}
