/* `sluice eval`: loss, perplexity and bits per byte of a model over a text. */
#include <math.h>
#include <signal.h>
#include <stdio.h>

#include "cli/cli.h"
#include "infer/eval.h"

static const char usage[] = "usage: sluice eval --model DIR --data PATH[,PATH...] [--seqlen S] [--json] ...\n"
                            "\n"
                            "Reports how well a model predicts a text: the mean loss per token, its perplexity\n"
                            "and, where the bytes of the text are known, bits per byte. Forward passes only, so\n"
                            "there is neither gradient nor optimizer state, and within the budgets of\n"
                            "--device-mem and --host-mem weights are streamed as in training. Neither budgets\n"
                            "nor threads change a bit of the result.";

static sl_eval *running;

static void on_signal(int signal)
{
    (void) signal;
    if (running)
        sl_eval_request_stop(running);
}

static void catch_signals(sl_eval *eval)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    running = eval;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static void show_progress(void *user, sl_stage stage, double fraction)
{
    char line[96];
    (void) user;
    snprintf(line, sizeof line, "%s %.0f %%", stage == SL_STAGE_VALIDATION ? "evaluating" : sl_stage_name(stage),
             100 * fraction);
    sl_cli_status_line(line);
}

static void print_table(const sl_eval *eval, const sl_eval_result *r)
{
    sl_trainer_view v;
    char a[32], b[SL_CLI_BUDGET], bits[128];
    sl_eval_look(eval, &v);
    if (r->bytes > 0)
        snprintf(bits, sizeof bits, "%.4f", r->bits_per_byte);
    else
        snprintf(bits, sizeof bits, "not known%s%s", r->text_unknown ? ": " : "",
                 r->text_unknown ? r->text_unknown : "");
    printf("model          %s, %s parameters, %s on %s\n", v.setup->model.name, sl_format_count(v.parameters, a),
           sl_precision_name(v.setup->program.precision), v.device);
    printf("weights        %s\n", v.weights);
    printf("data           %s: %s token%s in sequences of %lld\n", v.setup->data,
           sl_format_count((int64_t) r->tokens, a), sl_cli_plural((int64_t) r->tokens),
           (long long) v.setup->program.chunking.seqlen);
    printf("loss           %.4f\n", r->loss);
    printf("perplexity     %.4f\n", r->perplexity);
    printf("bits per byte  %s\n", bits);
    printf("speed          %s tok/s, %s\n", sl_cli_speed(r->tokens_per_s, a), sl_format_seconds(r->seconds, bits));
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        printf("%s  %s of %s\n", tier == SL_TIER_DEVICE ? "device memory" : "host memory  ",
               sl_format_bytes(v.measured.peak_bytes[tier], a),
               sl_cli_budget(v.budget_bytes[tier], v.unlimited_bytes[tier], b));
}

static sl_status evaluate(sl_eval *eval, bool json)
{
    sl_eval_result result;
    sl_json_writer w = {0};
    SL_TRY(sl_eval_run(eval, &result));
    sl_cli_status_clear();
    if (!json) {
        print_table(eval, &result);
        return SL_OK;
    }
    sl_eval_put(eval, &result, &w);
    sl_text_append(&w.text, "\n", 1);
    return sl_cli_write(&w.text, NULL);
}

static sl_status run(const sl_options *options, const char *const *operands, int64_t count)
{
    sl_eval *eval = NULL;
    (void) operands, (void) count;
    SL_TRY(sl_eval_create(options, sl_options_flag(options, "quiet") ? NULL : show_progress, NULL, &eval));
    catch_signals(eval);
    sl_status status = evaluate(eval, sl_options_flag(options, "json"));
    sl_cli_status_clear();
    running = NULL;
    sl_eval_destroy(eval);
    return status;
}

const sl_cli_command sl_cli_eval = {.usage = usage, .options = sl_eval_table, .run = run};
