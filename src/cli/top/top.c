/* carve top: the live view, and the same once as text or JSON. */
#include <errno.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/macros.h"
#include "base/units.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "cli/top/top_draw.h"
#include "cli/top/top_feed.h"
#include "cli/top/top_model.h"
#include "cli/top/top_term.h"
#include "cli/top/top_view.h"
#include "client/client.h"

#define INTERVAL_DEFAULT_NS 2000000000ull
#define SECOND_NS 1000000000ull

/* ---- once -------------------------------------------------------------------------------- */

static void list_print(const struct top_model *model, enum top_list list)
{
	const char *headings[TOP_COLUMNS_MAX + 1];
	size_t count, shown = 0;
	const struct column *columns = top_columns(list, &count);
	cleanup_table struct table table;
	struct cell cell;

	for (size_t c = 0; c < count; c++)
		if (!columns[c].leases || model->leases)
			headings[shown++] = columns[c].title;
	headings[shown] = NULL;
	table_begin(&table, headings);
	for (size_t i = 0; i < top_list_size(model, list); i++)
		for (size_t c = 0; c < count; c++) {
			if (columns[c].leases && !model->leases)
				continue;
			top_cell(model, list, i, c, &cell);
			table_add(&table, "%s", cell.text);
		}
	table_print(&table);
}

static void model_print(const struct top_model *model)
{
	char clock[32] = "";
	time_t now = (time_t)model->now;
	struct tm local;

	if (localtime_r(&now, &local))
		strftime(clock, sizeof(clock), "%Y-%m-%d %H:%M:%S", &local);
	printf("carve %s, %s, daemon %d, driver %s\n", model->version, clock,
	       (int)model->daemon_pid, model->driver);
	if (!top_list_size(model, TOP_GPUS))
		puts("\nno GPU: `carve check` says why");
	for (int list = 0; list < TOP_LISTS; list++) {
		if (!top_list_size(model, (enum top_list)list))
			continue;
		printf("\n%s\n", top_list_title((enum top_list)list));
		list_print(model, (enum top_list)list);
	}
}

static int once(const struct client *client, bool json, struct error *err)
{
	struct top_answers answers;
	int rc = top_fetch(client, &answers, err);

	if (rc < 0)
		return rc;
	struct top_model *model = top_model_read(&answers, (int64_t)time(NULL));
	if (!model) {
		rc = error_set(err, EXIT_CODE_FAILED, "out of memory");
	} else if (json) {
		json_t *object = top_model_json(model, &answers);

		rc = output_json(object, err);
		json_decref(object);
	} else {
		model_print(model);
	}
	top_model_free(model);
	top_answers_free(&answers);
	return rc;
}

/* ---- live -------------------------------------------------------------------------------- */

struct live {
	struct top_view view;
	struct top_feed *feed;
	struct top_model *model;
	int signals;           /* signalfd */
	uint64_t next_look_ns; /* CLOCK_MONOTONIC */
	bool looking;
	uint64_t heard_ns; /* when the daemon last answered */
	struct error trouble;
	int died_of; /* the signal that ends it; 0: none */
	bool quit;
};

static void take_news(struct live *live)
{
	struct top_news news;

	while (top_feed_take(live->feed, &news)) {
		if (news.released) {
			snprintf(live->view.message, sizeof(live->view.message), "%.60s: %.400s",
				 news.id, news.error.code ? news.error.message : "released");
			live->view.message_bad = news.error.code != 0;
			continue;
		}
		live->looking = false;
		live->trouble = news.error;
		if (!news.model)
			continue;
		live->heard_ns = now_monotonic_ns();
		top_view_update(&live->view, news.model);
		top_model_free(live->model);
		live->model = news.model;
	}
}

static void release(struct live *live, bool force)
{
	struct top_view *view = &live->view;

	view->message_bad = !top_feed_release(live->feed, view->asked, force);
	snprintf(view->message, sizeof(view->message), "%s: %s", view->asked,
		 view->message_bad ? "another release is under way, try again" : "being released");
}

static void take_keys(struct live *live)
{
	uint64_t interval = live->view.interval_ns;

	for (int key; !live->quit && (key = top_screen_key()) != 0;)
		switch (top_view_key(&live->view, key)) {
		case TOP_QUIT:
			live->quit = true;
			break;
		case TOP_RELEASE:
			release(live, false);
			break;
		case TOP_RELEASE_FORCE:
			release(live, true);
			break;
		case TOP_REDRAW:
			top_screen_disturbed();
			break;
		case TOP_NOTHING:
			break;
		}
	if (live->view.interval_ns < interval)
		live->next_look_ns = now_monotonic_ns();
}

/* Ctrl-Z: the shell gets its terminal, and we get it back with `fg`. */
static void suspend(void)
{
	sigset_t stop;

	top_screen_leave();
	sigemptyset(&stop);
	sigaddset(&stop, SIGTSTP);
	raise(SIGTSTP);
	sigprocmask(SIG_UNBLOCK, &stop, NULL); /* here it stops */
	sigprocmask(SIG_BLOCK, &stop, NULL);
	top_screen_enter();
}

static void take_signals(struct live *live)
{
	struct signalfd_siginfo info;

	while (read(live->signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
		switch ((int)info.ssi_signo) {
		case SIGWINCH:
			top_screen_resized();
			break;
		case SIGTSTP:
			suspend();
			break;
		case SIGCONT:
			top_screen_enter();
			break;
		default:
			live->died_of = (int)info.ssi_signo;
			live->quit = true;
			return;
		}
}

static void draw(struct live *live)
{
	uint64_t silent = now_monotonic_ns() - live->heard_ns;
	struct top_status status = {
		.trouble = live->trouble.code ? live->trouble.message : NULL,
		.silent_s = (int64_t)(silent / SECOND_NS),
	};

	top_screen_draw(&live->view, &status);
}

/* Milliseconds until the next look, or the next second of a silence. */
static int patience_ms(const struct live *live)
{
	uint64_t now = now_monotonic_ns(), until = now + SECOND_NS;

	if (!live->looking)
		until = live->trouble.code ? MIN(until, live->next_look_ns) : live->next_look_ns;
	else if (!live->trouble.code)
		return -1;
	return until <= now ? 0 : (int)((until - now) / 1000000) + 1;
}

static void look_if_due(struct live *live)
{
	uint64_t now = now_monotonic_ns();

	if (live->looking || now < live->next_look_ns)
		return;
	live->looking = true;
	live->next_look_ns = now + live->view.interval_ns;
	top_feed_look(live->feed);
}

static void serve(struct live *live)
{
	struct pollfd fds[] = {
		{.fd = STDIN_FILENO, .events = POLLIN},
		{.fd = live->signals, .events = POLLIN},
		{.fd = top_feed_fd(live->feed), .events = POLLIN},
	};

	while (!live->quit) {
		look_if_due(live);
		draw(live);
		if (poll(fds, ARRAY_SIZE(fds), patience_ms(live)) < 0 && errno != EINTR)
			break;
		take_signals(live);
		take_news(live);
		if (!live->quit)
			take_keys(live);
		/* The terminal is gone. */
		if (fds[0].revents & (POLLHUP | POLLERR | POLLNVAL))
			live->quit = true;
	}
}

/* Signals are read, not handled. Curses must not handle them either, so they are blocked before. */
static int signals_open(sigset_t *before)
{
	static const int wanted[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH};
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
		sigaddset(&set, wanted[i]);
	sigprocmask(SIG_BLOCK, &set, before);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Curses has set handlers of its own for these. */
static void signals_default(void)
{
	static const int theirs[] = {SIGINT, SIGTERM, SIGTSTP, SIGWINCH};

	for (size_t i = 0; i < ARRAY_SIZE(theirs); i++)
		signal(theirs[i], SIG_DFL);
}

static int live_run(const struct client *client, uint64_t interval_ns, struct error *err)
{
	struct live *live = calloc(1, sizeof(*live));
	sigset_t before;
	int rc = 0;

	if (!live)
		return error_set(err, EXIT_CODE_FAILED, "out of memory");
	live->heard_ns = now_monotonic_ns();
	live->signals = signals_open(&before);
	top_view_init(&live->view, interval_ns);
	if (live->signals < 0 || top_feed_start(&live->feed, client) < 0) {
		rc = error_set(err, EXIT_CODE_FAILED, "cannot start: %s", strerrordesc_np(errno));
	} else if (!top_screen_open()) {
		rc = error_set(err, EXIT_CODE_FAILED, "this terminal cannot show a screen");
		error_hint(err, "carve top --once prints the view as text");
	} else {
		signals_default();
		serve(live);
		top_screen_close();
	}
	int died_of = live->died_of;
	top_feed_stop(live->feed);
	top_view_free(&live->view);
	top_model_free(live->model);
	close_fd(&live->signals);
	free(live);
	if (died_of) {
		/* The parent process sees the signal that ended it. */
		signal(died_of, SIG_DFL);
		raise(died_of);
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
	return rc;
}

/* ---- the verb ---------------------------------------------------------------------------- */

static int interval_read(const struct cli *cli, uint64_t *ret_ns, struct error *err)
{
	const char *text = cli->value[OPT_INTERVAL];
	uint64_t ns;

	if (!text)
		return 0;
	int rc = units_parse_seconds(text, "--interval", &ns, err);
	if (rc < 0)
		return rc;
	if (ns < TOP_INTERVAL_MIN_NS || ns > TOP_INTERVAL_MAX_NS) {
		error_set(err, EXIT_CODE_USAGE, "--interval: '%.64s' is not from 0.1 to 3600",
			  text);
		error_hint(err, "for example: carve top --interval 2");
		return -EXIT_CODE_USAGE;
	}
	*ret_ns = ns;
	return 0;
}

int cli_top(struct cli *cli, struct error *err)
{
	uint64_t interval_ns = INTERVAL_DEFAULT_NS;
	bool json = cli->value[OPT_JSON] != NULL;
	struct client client;
	int rc = interval_read(cli, &interval_ns, err);

	if (rc < 0 || (rc = client_open(&client, cli->value[OPT_HOST], err)) < 0)
		return rc;
	if (json || cli->value[OPT_ONCE] || !top_term_usable())
		return once(&client, json, err);
	/* `top` only looks: it does not start a daemon that has ended. */
	client.own = false;
	setlocale(LC_CTYPE, ""); // NOLINT(concurrency-mt-unsafe): before there are threads
	return live_run(&client, interval_ns, err);
}
