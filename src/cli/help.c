/* `sluice help [COMMAND]`, or `sluice --help`: what there is, or what COMMAND --help prints. */
#include <string.h>

#include "cli/cli.h"

static const char usage[] = "usage: sluice help [COMMAND]\n"
                            "\n"
                            "Lists the commands, or explains one as `sluice COMMAND --help` does.";

void sl_cli_overview(FILE *out)
{
    fputs("Sluice trains neural networks larger than the accelerator's memory at nearly\n"
          "the speed they would have if they fitted.\n\n"
          "usage: sluice COMMAND [options]\n\n",
          out);
#define SL_COMMAND(name, summary) fprintf(out, "  %-11s %s\n", #name, summary);
#include "cli/commands.def"
#undef SL_COMMAND
    fputs("\n  sluice COMMAND --help explains a command's options, sluice man COMMAND prints\n"
          "  its manual page.\n"
          "\nexamples:\n"
          "  sluice train --model byte-tiny --data . --seqlen 256 --device-mem 64MiB\n"
          "  sluice plan --model llama3-8b --seqlen 8192 --tokens-per-step 512k --hw h200 \\\n"
          "      --precision bf16 --device-mem 24GiB --host-mem 100GiB\n",
          out);
}

static int command(int argc, char **argv)
{
    static char option[] = "--help";
    char *arguments[] = {option, option};
    if (argc == 0) {
        sl_cli_overview(stdout);
        return 0;
    }
    if (sl_cli_explain(NULL, 0, usage, 1, argv))
        return 0;
    const sl_cli_command *of = sl_cli_find(argv[0]);
    if (!of)
        return sl_cli_fail(SL_E_USAGE);
    if (argc > 1) /* a bench */
        arguments[0] = argv[1];
    return sl_cli_run(of, argc > 1 ? 2 : 1, arguments);
}

const sl_cli_command sl_cli_help = {.usage = usage, .operands = "COMMAND", .run_arguments = command};
