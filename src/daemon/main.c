#include <sys/prctl.h>

#include "daemon/daemon.h"

#ifdef __SANITIZE_ADDRESS__
/* LeakSanitizer looks through the process by ptrace, which one without rights of its own refuses.
 */
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return prctl(PR_GET_DUMPABLE) != 1 || prctl(PR_GET_SECCOMP) > 0;
}
#endif

int main(int argc, char **argv)
{
	return daemon_main(argc, argv);
}
