#include "cli/top/top_term.h"

/* Its macros have names as short as `lines`: nothing else is included with it. */
#include <curses.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <term.h>
#include <termios.h>
#include <unistd.h>

static struct termios before;
static char leave[256];

bool top_term_usable(void)
{
	int status = 0;

	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
		return false;
	if (setupterm(NULL, STDOUT_FILENO, &status) != OK || status != 1)
		return false;
	const char *cup = tigetstr("cup");
	bool usable = cup && cup != (const char *)-1;
	del_curterm(cur_term);
	return usable;
}

static void leave_add(const char *name)
{
	const char *text = tigetstr(name);

	/* "$<" begins the time that an old terminal takes for it. */
	size_t used = strlen(leave);
	if (text && text != (const char *)-1)
		snprintf(leave + used, sizeof(leave) - used, "%.*s", (int)strcspn(text, "$"), text);
}

/* Only what is safe in a signal handler. The signal comes again, by its default. */
static void on_fatal(int number)
{
	(void)!write(STDOUT_FILENO, leave, strlen(leave));
	tcsetattr(STDIN_FILENO, TCSANOW, &before);
	raise(number); /* delivered when this returns */
}

void top_term_guard(void)
{
	static const int fatal[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
	struct sigaction action = {.sa_handler = on_fatal, .sa_flags = (int)SA_RESETHAND};

	leave[0] = '\0';
	tcgetattr(STDIN_FILENO, &before);
	leave_add("sgr0");
	leave_add("rmkx");
	leave_add("cnorm");
	leave_add("rmcup");
	for (size_t i = 0; i < sizeof(fatal) / sizeof(fatal[0]); i++) {
		struct sigaction now;

		/* A sanitizer's own handler says more. */
		if (sigaction(fatal[i], NULL, &now) == 0 && now.sa_handler == SIG_DFL)
			sigaction(fatal[i], &action, NULL);
	}
}
