/* `sluice version`, or `sluice --version`. */
#include <stdio.h>

#include "cli/cli.h"

static const char usage[] = "usage: sluice version\n"
                            "\n"
                            "Prints the version of Sluice, as `sluice --version` does.";

static sl_status print_version(const sl_options *options, const char *const *operands, int64_t n_operands)
{
    (void) options, (void) operands, (void) n_operands;
    printf("sluice %s\n", sl_version());
    return SL_OK;
}

const sl_cli_command sl_cli_version = {.usage = usage, .run = print_version};
