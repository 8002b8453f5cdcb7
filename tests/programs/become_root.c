/* Set-user-ID programs often are like this: takes the rights of its file's owner for good, and runs
 * a command in its caller's environment. The command is no set-user-ID program, and the loader does
 * not know it for one.
 *
 *   become_root CMD... */
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	if (argc < 2 || setreuid(geteuid(), geteuid()) < 0) {
		fputs("become_root: cannot\n", stderr);
		return 125;
	}
	execv(argv[1], argv + 1);
	perror(argv[1]);
	return 126;
}
