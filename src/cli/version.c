/* `sluice version`, or `sluice --version`. */
#include <stdio.h>

#include "cli/cli.h"

static const char usage[] = "usage: sluice version\n"
                            "\n"
                            "Prints the version of Sluice, as `sluice --version` does.";

static sl_status print_version(const sl_options *options)
{
    (void) options;
    printf("sluice %s\n", sl_version());
    return SL_OK;
}

static int command(int argc, char **argv)
{
    return sl_cli_run(NULL, 0, usage, argc, argv, print_version);
}

const sl_cli_command sl_cli_version = {.usage = usage, .options = sl_cli_no_options, .run = command};
