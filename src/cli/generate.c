/* `sluice generate`: text from a prompt, printed as it appears. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "infer/generate.h"

static const char usage[] = "usage: sluice generate --model DIR [--prompt TEXT] [--max-tokens N]\n"
                            "                       [--temperature T] [--top-k N] [--top-p P] [--seed N]\n"
                            "                       [--stop TEXT|TEXT] [--json] ...\n"
                            "       sluice generate --model DIR --chat [--system TEXT] [--prompt TEXT] ...\n"
                            "\n"
                            "Continues a text. The weights and the keys and values of the text so far are\n"
                            "placed within --device-mem and --host-mem, and what device memory does not hold\n"
                            "is streamed from the host for every token, so the model may be larger than the\n"
                            "accelerator. Neither budgets nor threads change the text. Ctrl-C ends it behind\n"
                            "the token that is being made.\n"
                            "--chat answers in the form of the model's chat template, --prompt or line by line\n"
                            "what comes on stdin, until that ends.";

static sl_generate *running;

static void on_signal(int signal)
{
    (void) signal;
    if (running)
        sl_generate_request_stop(running);
}

static void catch_signals(sl_generate *generate)
{
    struct sigaction action = {.sa_handler = on_signal}; /* without SA_RESTART: waiting for a line ends too */
    running = generate;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static void show_progress(void *user, sl_stage stage, double fraction)
{
    char line[96];
    (void) user;
    snprintf(line, sizeof line, "%s %.0f %%", sl_stage_name(stage), 100 * fraction);
    sl_cli_status_line(line);
}

static sl_status print_text(void *user, const char *text, size_t length)
{
    (void) user;
    sl_cli_status_clear();
    fwrite(text, 1, length, stdout);
    fflush(stdout);
    return SL_OK;
}

/* The ids where there is no text, and on stderr what it took, so that stdout is the text alone. */
static void print_end(const sl_generate *generate, const sl_generated *r, bool quiet)
{
    sl_session_view v;
    char a[32], b[SL_CLI_BUDGET], c[32], d[32];
    sl_generate_look(generate, &v);
    for (int64_t i = 0; i < r->n_tokens && !r->text[0]; i++)
        printf("%s%d", i ? "," : "", r->tokens[i]);
    printf("\n");
    fflush(stdout);
    if (quiet)
        return;
    fprintf(stderr, "%lld tokens behind %lld of the prompt, %s tok/s; ended by %s\n", (long long) r->n_tokens,
            (long long) r->n_prompt, sl_cli_speed(sl_generated_speed(r), a), r->stop);
    fprintf(stderr, "device memory %s of %s (%s of keys and values), %s streamed for a token\n",
            sl_format_bytes(v.peak_bytes[SL_TIER_DEVICE], a), sl_cli_budget(v.budget_bytes[SL_TIER_DEVICE], 0, b),
            sl_format_bytes(v.cache_bytes, c), sl_format_bytes(v.streamed_bytes, d));
}

static sl_status generate_text(sl_generate *generate, bool json, bool quiet)
{
    sl_generated result;
    sl_json_writer w = {0};
    SL_TRY(sl_generate_run(generate, json ? NULL : print_text, NULL, &result));
    sl_cli_status_clear();
    if (!json) {
        print_end(generate, &result, quiet);
        return SL_OK;
    }
    sl_generate_put(generate, &result, &w);
    sl_text_append(&w.text, "\n", 1);
    return sl_cli_write(&w.text, NULL);
}

/* A turn per line, until stdin ends or somebody interrupts. The mark is for people alone. */
static sl_status converse(sl_generate *generate)
{
    const bool people = isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
    sl_status status = SL_OK;
    sl_generated result = {.stop = ""};
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    sl_cli_status_clear();
    while (status == SL_OK && strcmp(result.stop, "interrupted") != 0) {
        if (people)
            fputs("> ", stderr);
        length = getline(&line, &room, stdin);
        while (length > 0 && (line[length - 1] == '\n' || line[length - 1] == '\r'))
            line[--length] = 0;
        if (length < 0)
            break;
        if (length == 0)
            continue;
        status = sl_generate_say(generate, line, print_text, NULL, &result);
        sl_cli_status_clear();
        if (status == SL_OK)
            printf("\n%s", people ? "\n" : "");
        fflush(stdout);
    }
    if (people)
        fputs("\n", stderr);
    free(line);
    return status;
}

static sl_status run(const sl_options *options, const char *const *operands, int64_t count)
{
    sl_generate *generate = NULL;
    const bool quiet = sl_options_flag(options, "quiet"), json = sl_options_flag(options, "json");
    const bool conversation = sl_options_flag(options, "chat") && !sl_options_is_set(options, "prompt");
    (void) operands, (void) count;
    if (conversation && json)
        return sl_fail(SL_E_USAGE, "--json prints one answer: give --prompt with --chat");
    SL_TRY(sl_generate_create(options, quiet ? NULL : show_progress, NULL, &generate));
    catch_signals(generate);
    sl_status status = conversation ? converse(generate) : generate_text(generate, json, quiet);
    sl_cli_status_clear();
    running = NULL;
    sl_generate_destroy(generate);
    return status;
}

const sl_cli_command sl_cli_generate = {.usage = usage, .options = sl_generate_table, .run = run};
