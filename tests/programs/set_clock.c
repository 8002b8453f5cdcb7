/* Preloaded into a daemon, has it see a clock that is set: CLOCK_REALTIME is ahead by as many
 * seconds as the file says that SET_CLOCK names. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *time)
{
	const char *path = getenv("SET_CLOCK");
	int rc = (int)syscall(SYS_clock_gettime, clock, time);
	FILE *file = rc == 0 && clock == CLOCK_REALTIME && path ? fopen(path, "re") : NULL;
	long ahead = 0;

	if (file && fscanf(file, "%ld", &ahead) == 1)
		time->tv_sec += ahead;
	if (file)
		fclose(file);
	return rc;
}
