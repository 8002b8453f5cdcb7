/* Names in a daemon's runtime directory that its clients know, too. */
#pragma once

/* The options of the daemon (daemon/host/runtime.h). */
#define RUNTIME_START_FILE "start"
