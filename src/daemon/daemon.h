/* The program carved. */
#pragma once

int daemon_main(int argc, char **argv);
