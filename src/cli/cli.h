#pragma once
int cli_main(int argc, char **argv);
