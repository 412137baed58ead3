/*
 * The option table and what it means. Options that fix the bits (model, data, chunking, precision, seed, optimizer) and options
 * that only place the work (budgets, threads, rounds) are told apart in their help: a run may be resumed with others of the
 * second sort.
 *
 * Defaults that depend on other options (the chunk on the sequence length, the precision on the device) have no default in the
 * table and are settled here, once.
 */
#include "train/job.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "core/file.h"
#include "core/log.h"
#include "core/pool.h"
#include "plan/search/rounds.h"
#include "train/companions.h"
#include "train/tied_head.h"
#include "train/weights.h"

static const sl_option table[] = {
    {"model", "NAME|PATH", SL_OPT_STRING, NULL, "Model and data",
     "What to train: a preset (`sluice models` lists them), a Hugging Face config.json, a folder that holds one, or "
     "ORG/NAME[@REVISION] in the local Hugging Face cache. Weights beside it (model.safetensors, or its index) are "
     "what the run begins with."},
    {"data", "PATH[,PATH...]", SL_OPT_STRING, NULL, "Model and data",
     "Training data, of one kind. Text files, folders of them and records (.jsonl, .json, .parquet), compressed (.gz, "
     ".zst) or not, become tokens in --cache first, with --tokenizer. Without one, text is read as bytes (tokens "
     "0..255, each file a document that "
     "begins with token 0), for byte-level models: a vocabulary of 256 to 512 tokens. Token shards in llm.c's "
     "format (256-int32 header, uint16 or uint32 tokens) are taken as they are."},
    {"data-format", "auto|bytes|text|jsonl|parquet|shards", SL_OPT_CHOICE, "auto", "Model and data",
     "auto: found from content and names; where a folder holds text and records, what has more bytes is the data. "
     "text, jsonl, parquet, shards: all files as this, whatever their names. bytes: text files of any name as bytes, "
     "for any "
     "vocabulary of 256 or more (to measure the speed of a model without its tokenizer)."},
    {"data-field", "NAME", SL_OPT_STRING, NULL, "Model and data",
     "The field of the records to train on: a string, or a list of messages. Default: found by its name (messages, "
     "conversations, prompt and completion, instruction and output, text, content)."},
    {"tokenizer", "DIR|FILE", SL_OPT_STRING, NULL, "Model and data",
     "The tokenizer for text and records: a folder with a tokenizer.json, that file, or a tiktoken file. Default: the "
     "model's folder, where it holds one; else text is bytes, for byte-level models."},
    {"train-on", "all|assistant|completion", SL_OPT_CHOICE, "assistant", "Model and data",
     "What the loss of a chat counts: everything, every turn of the assistant with the token that ends it, or the last "
     "such turn. Chats of a prompt and a completion count the completion, unless it is all."},
    {"cache", "DIR", SL_OPT_STRING, NULL, "Model and data",
     "Where tokens that were made of records are kept. Default: $XDG_CACHE_HOME/sluice/tokens."},
    {"val-data", "PATH[,PATH...]", SL_OPT_STRING, NULL, "Model and data",
     "Validation data, in the same formats. Without it --val-every holds out the last --val-share of --data."},
    {"val-share", "SHARE", SL_OPT_F64, "0.02", "Model and data",
     "Share of the sequences of --data held out for validation when --val-every is given without --val-data."},
    {"seqlen", "TOKENS", SL_OPT_I64, "256", "Model and data",
     "Sequence length: how far attention sees. Sequences much shorter than a chunk are packed into one, longer ones "
     "are cut "
     "into slices."},
    {"tokens-per-step", "TOKENS", SL_OPT_I64, NULL, "Model and data",
     "Tokens per optimizer step, a multiple of --seqlen (gradients accumulate over as many rounds as that takes). "
     "Default: "
     "2048, or one sequence if that is more."},
    {"mask-documents", NULL, SL_OPT_FLAG, "false", "Model and data",
     "Keep attention inside documents and restart positions with each one."},
    {"document-token", "TOKEN", SL_OPT_I64, "-1", "Model and data",
     "The token that begins a document, for --mask-documents. Default: 0 for text, 50256 for uint16 shards, 128000 for "
     "llm.c's "
     "uint32 shards."},
    {"init-from", "PATH", SL_OPT_STRING, NULL, "Model and data",
     "Begin with the weights of this Hugging Face folder or .safetensors file. Default: those of the model's folder, "
     "or random ones."},
    {"from-scratch", NULL, SL_OPT_FLAG, "false", "Model and data",
     "Begin with random weights, even where the model's folder holds some."},

    {"steps", "N", SL_OPT_I64, "100", "Training", "Optimizer steps in all, those before a resume included."},
    {"precision", "f32|bf16|bf16-master", SL_OPT_CHOICE, NULL, "Training",
     "f32: everything in 32 bits, 16 bytes per parameter with AdamW. bf16: parameters, gradients and moments in bf16 "
     "with stochastic rounding, 8 bytes. bf16-master: bf16 arithmetic, f32 master weights and moments, 16 bytes; the "
     "safe choice for speed. "
     "Default: f32 on the cpu, bf16-master elsewhere."},
    {"optimizer", NULL, SL_OPT_CHOICE, "adamw", "Training", NULL}, /* from the table of optimizers */
    {"optimizer-for", "RULES", SL_OPT_STRING, NULL, "Training",
     "Other optimizers for some parameters, by name: PATTERN=OPTIMIZER, several with commas (* stands for any "
     "characters); the first that matches decides. For example \"embedding=adamw,*norm=sgd\". Default: none."},
    {"lr", "RATE", SL_OPT_F64, "3e-4", "Training",
     "Peak learning rate. Small models tolerate more: 1e-3 at 10M parameters."},
    {"schedule", "constant|cosine|wsd", SL_OPT_CHOICE, "cosine", "Training",
     "How the learning rate goes from its peak to --min-lr: never, along half a cosine, or (warm-up, stable, decay) in "
     "a straight "
     "line over the last --decay-share of the steps."},
    {"min-lr", "RATE", SL_OPT_F64, NULL, "Training", "Learning rate at the last step. Default: a tenth of --lr."},
    {"warmup", "STEPS", SL_OPT_I64, NULL, "Training",
     "Steps over which the learning rate rises to its peak. Default: a twentieth of --steps, at most 2000."},
    {"decay-share", "SHARE", SL_OPT_F64, "0.2", "Training", "wsd: the share of all steps spent going down."},
    {"weight-decay", "RATE", SL_OPT_F64, "0.1", "Training", "Weight decay of matrices; norms and biases have none."},
    {"freeze", "PATTERNS", SL_OPT_STRING, NULL, "Training",
     "Parameters that are not trained, by name: embedding,layers.*.mlp_norm (* stands for any characters). Default: "
     "none."},
    {"clip", "NORM", SL_OPT_F64, "0", "Training",
     "Largest global gradient norm; larger gradients are scaled down to it (1.0 is usual for large models). 0 leaves "
     "them as they are, and every layer is updated as soon as its gradient is there instead of after the last one."},
    {"on-nan", "stop|skip", SL_OPT_CHOICE, "stop", "Training",
     "When a loss or gradient is not finite: stop and report which task and tensor began it, or leave that step out."},
    {"nondeterministic", NULL, SL_OPT_FLAG, "false", "Training",
     "Allow a nondeterministic reduction order in attention's backward: faster and with less memory where it is "
     "cuDNN's, but two runs then differ in the last bits. On an H100 or H200 with heads of 64 or 128 it is not "
     "cuDNN's, "
     "and nothing changes."},
    {"seed", "N", SL_OPT_I64, "1", "Training", "Fixes initial weights, data order, dropout and rounding noise."},
    {"val-every", "STEPS", SL_OPT_I64, "0", "Training",
     "Validate after every so many steps and after the last; 0: never."},
    {"val-steps", "N", SL_OPT_I64, "10", "Training",
     "Batches of --tokens-per-step per validation: always the same ones, at most all there are."},

    {"device", "auto|cpu|cuda", SL_OPT_STRING, "auto", "Machine and memory",
     "Where to compute; auto takes the best device present."},
    {"device-mem", "BYTES|PERCENT", SL_OPT_BUDGET, "unlimited", "Machine and memory",
     "Hard budget of device memory: 24GiB, 800MB, or 40% of what the job takes without budgets. Everything counts. It "
     "changes the speed, never a bit of the result. "
     "Default: what the job likes, as long as the machine has it; else it is planned for what there is. unlimited: "
     "not held against the machine."},
    {"host-mem", "BYTES|PERCENT", SL_OPT_BUDGET, "unlimited", "Machine and memory",
     "Hard budget of host memory, Sluice's own structures and buffers included; bytes or a percentage as above. "
     "Default: "
     "as --device-mem."},
    {"workspace-mem", "BYTES", SL_OPT_BYTES, NULL, "Machine and memory",
     "The most device memory a kernel's workspace takes where it has the choice (attention's backward): faster with "
     "more, which the rest of the step then lacks. Changes no bit of the result. Default: a "
     "twentieth of --device-mem, a tenth of small ones."},
    {"threads", "N", SL_OPT_I64, "0", "Machine and memory",
     "CPU threads; 0: one per core. Changes no bit of the result."},
    {"chunk-tokens", "TOKENS", SL_OPT_I64, NULL, "Machine and memory",
     "Tokens one launch works on: a multiple of --seqlen, or a part of it to cut sequences into slices. It fixes the "
     "bits, so "
     "it is kept across resumes. Default: from the sequence length."},
    {"chunks-per-round", "N", SL_OPT_I64, "0", "Machine and memory",
     "Chunks that go forward and backward together; where sequences are cut into slices, a multiple of their number. "
     "0: the planner chooses. Changes no bit of the result."},
    {"hw", "NAME|FILE", SL_OPT_STRING, NULL, "Machine and memory",
     "Plan for another machine: h200, h100, a100, rtx5090, rtx4090, rtx3090, this, or a JSON profile. Implies --costs "
     "roofline."},
    {"costs", "roofline|measured", SL_OPT_CHOICE, NULL, "Machine and memory",
     "Where the planner's times come from: arithmetic on the machine's profile, or each distinct task timed once (kept "
     "in "
     "$XDG_CACHE_HOME/sluice). Default: measured for this machine, roofline for --hw."},

    {"out", "DIR", SL_OPT_STRING, NULL, "Files",
     "The run's folder: event log and checkpoints. Without it nothing is written."},
    {"checkpoint-every", "STEPS", SL_OPT_I64, "0", "Files",
     "Write a checkpoint after every so many steps; 0: only after the last (and on SIGINT or SIGTERM); -1: never, for "
     "benchmarks."},
    {"keep", "N", SL_OPT_I64, "3", "Files",
     "Checkpoints to keep; older ones are removed once a new one is safely on disk."},
    {"resume", NULL, SL_OPT_FLAG, "false", "Files",
     "Go on from the newest valid checkpoint in --out, to the same bits as an uninterrupted run; from the start if "
     "there is "
     "none. Budgets, threads and steps may differ from before."},
    {"config", "FILE", SL_OPT_STRING, NULL, "Files",
     "Read options from a file: JSON ({\"steps\": 100}) or lines of `key = value`. The command line overrides it."},

    {"dry-run", NULL, SL_OPT_FLAG, "false", "Output",
     "Check options, data, weights and --out, print the plan and stop: nothing is trained or written."},
    {"json", NULL, SL_OPT_FLAG, "false", "Output", "Put one JSON object with all figures on the last line of stdout."},
    {"quiet", NULL, SL_OPT_FLAG, "false", "Output", "Only warnings, errors and the result."},
    {"verbose", NULL, SL_OPT_FLAG, "false", "Output", "Report more about what happens and why."},
};

/* `table` with the optimizers' names and help in their option, and their own options behind --weight-decay, those of
 * adapters behind --freeze, those of samples behind --val-steps. */
enum {
    MOST_OPTIONS = SL_COUNT(table) + SL_LORA_OPTIONS + SL_SAMPLE_OPTIONS + SL_OPTIMIZER_COUNT * SL_MAX_OPTIMIZER_OPTIONS
};
static sl_option whole_table[MOST_OPTIONS];
static int64_t n_options;
static pthread_once_t joined = PTHREAD_ONCE_INIT;

static void join_tables(void)
{
    for (int64_t i = 0; i < SL_COUNT(table); i++) {
        sl_option *option = &whole_table[n_options++];
        *option = table[i];
        if (strcmp(option->name, "optimizer") == 0)
            sl_job_describe_optimizers(option);
        if (strcmp(option->name, "freeze") == 0)
            n_options = sl_job_list_lora_options(whole_table, n_options);
        if (strcmp(option->name, "val-steps") == 0)
            n_options = sl_job_list_sample_options(whole_table, n_options);
        if (strcmp(option->name, "weight-decay") == 0)
            n_options = sl_job_list_optimizer_options(whole_table, n_options);
    }
}

const sl_option *sl_job_table(int64_t *count)
{
    pthread_once(&joined, join_tables);
    *count = n_options;
    return whole_table;
}

sl_status sl_job_create(sl_job **out)
{
    sl_job *job;
    SL_TRY(sl_alloc(&job, 1, sizeof *job));
    int64_t count;
    const sl_option *options = sl_job_table(&count);
    sl_status status = sl_options_create(options, count, &job->options);
    if (status != SL_OK) {
        sl_free(job);
        return status;
    }
    *out = job;
    return SL_OK;
}

void sl_job_destroy(sl_job *job)
{
    if (!job)
        return;
    sl_options_destroy(job->options);
    sl_free(job);
}

sl_status sl_job_set(sl_job *job, const char *key, const char *value)
{
    if (!key || !value)
        return sl_fail(SL_E_USAGE, "an option's %s is NULL", key ? "value" : "key");
    SL_TRY(sl_options_set(job->options, key, value));
    return strcmp(key, "config") == 0 ? sl_options_parse_file(job->options, value) : SL_OK;
}

sl_status sl_job_parse(sl_job *job, int argc, char **argv)
{
    SL_TRY(sl_options_parse_env(job->options));
    SL_TRY(sl_options_parse_args(job->options, argc, argv));
    const char *config = sl_options_string(job->options, "config");
    return config ? sl_options_parse_file(job->options, config) : SL_OK;
}

/* ---- resolving ---- */

static sl_status at_least(const sl_options *o, const char *name, int64_t least)
{
    int64_t value = sl_options_i64(o, name);
    if (value < least)
        return sl_fail(SL_E_USAGE, "--%s %" PRId64 " is too small: give at least %" PRId64, name, value, least);
    return SL_OK;
}

sl_status sl_job_between(const sl_options *o, const char *name, double low, double high)
{
    double value = sl_options_f64(o, name);
    if (!(value >= low && value <= high))
        return sl_fail(SL_E_USAGE, "--%s %g is out of range: give a number from %g to %g", name, value, low, high);
    return SL_OK;
}

static sl_status check_ranges(const sl_options *o)
{
    static const struct {
        const char *name;
        int64_t least;
    } counts[] = {{"seqlen", 1}, {"steps", 1},           {"val-every", 0},        {"val-steps", 1},        {"keep", 1},
                  {"seed", 0},   {"document-token", -1}, {"chunks-per-round", 0}, {"checkpoint-every", -1}};
    static const struct {
        const char *name;
        double low, high;
    } numbers[] = {
        {"lr", 0, 1e30}, {"weight-decay", 0, 1e6}, {"clip", 0, 1e30}, {"val-share", 0, 0.9}, {"decay-share", 0, 1}};
    for (int64_t i = 0; i < SL_COUNT(counts); i++)
        SL_TRY(at_least(o, counts[i].name, counts[i].least));
    for (int64_t i = 0; i < SL_COUNT(numbers); i++)
        SL_TRY(sl_job_between(o, numbers[i].name, numbers[i].low, numbers[i].high));
    if (sl_options_is_set(o, "min-lr")) {
        const double least = sl_options_f64(o, "min-lr"), lr = sl_options_f64(o, "lr");
        SL_TRY(sl_job_between(o, "min-lr", 0, 1e30));
        if (least > lr)
            return sl_fail(SL_E_USAGE, "--min-lr %g is above --lr %g: give a smaller one", least, lr);
    }
    if (sl_options_is_set(o, "warmup"))
        SL_TRY(at_least(o, "warmup", 0));
    SL_TRY(sl_pool_check_threads(sl_options_i64(o, "threads")));
    if (sl_options_i64(o, "steps") > UINT32_MAX - 1)
        return sl_fail(SL_E_USAGE, "--steps %" PRId64 " is too large: at most %u", sl_options_i64(o, "steps"),
                       UINT32_MAX - 1);
    return SL_OK;
}

static sl_status check_data(const sl_options *o, const sl_data *callback)
{
    bool every = sl_options_i64(o, "val-every") > 0, data = sl_options_string(o, "val-data") != NULL;
    if (callback->read && (data || sl_options_string(o, "data")))
        return sl_fail(SL_E_USAGE, "the job's data comes from a callback: leave out --data and --val-data, or "
                                   "sl_job_set_data");
    if (every && !data && !callback->val_sequences && sl_options_f64(o, "val-share") == 0)
        return sl_fail(SL_E_USAGE, "--val-every with --val-share 0 has nothing to validate on: give --val-data, or a "
                                   "larger --val-share");
    if (data && !every)
        return sl_fail(SL_E_USAGE, "--val-data is not read without --val-every: give --val-every too, or leave out "
                                   "--val-data");
    return SL_OK;
}

static bool is(const sl_options *o, const char *name, const char *value)
{
    const char *text = sl_options_string(o, name);
    return text && strcmp(text, value) == 0;
}

static void resolve_schedule(const sl_options *o, sl_setup *setup)
{
    sl_schedule *s = &setup->schedule;
    s->kind = is(o, "schedule", "constant") ? SL_SCHEDULE_CONSTANT
              : is(o, "schedule", "wsd")    ? SL_SCHEDULE_WSD
                                            : SL_SCHEDULE_COSINE;
    s->steps = setup->steps;
    s->peak = sl_options_f64(o, "lr");
    s->least = sl_options_is_set(o, "min-lr") ? sl_options_f64(o, "min-lr") : s->peak / 10;
    s->warmup = sl_options_is_set(o, "warmup") ? sl_options_i64(o, "warmup") : SL_MIN(setup->steps / 20, 2000);
    s->decay = SL_MAX((int64_t) llround(sl_options_f64(o, "decay-share") * (double) setup->steps), 1);
}

static sl_status resolve_chunking(const sl_options *o, sl_setup *setup)
{
    sl_chunking *c = &setup->program.chunking;
    int64_t seqlen = sl_options_i64(o, "seqlen");
    int64_t tokens = SL_MAX(2048 / seqlen, 1) * seqlen;
    if (sl_options_is_set(o, "tokens-per-step"))
        tokens = sl_options_i64(o, "tokens-per-step");
    if (tokens < seqlen || tokens % seqlen != 0)
        return sl_fail(SL_E_USAGE,
                       "--tokens-per-step %" PRId64 " must be a multiple of --seqlen %" PRId64 ": for example %" PRId64,
                       tokens, seqlen, SL_MAX(tokens / seqlen, 1) * seqlen);
    if (tokens > INT32_MAX)
        return sl_fail(SL_E_USAGE, "--tokens-per-step %" PRId64 " is too large: at most %d", tokens, INT32_MAX);
    if (setup->model.max_seqlen && seqlen > setup->model.max_seqlen)
        return sl_fail(SL_E_USAGE, "--seqlen %" PRId64 " is more than the %" PRId64 " positions model %s has learned",
                       seqlen, setup->model.max_seqlen, setup->model.name);
    if (setup->model.max_positions && seqlen > setup->model.max_positions)
        sl_warn("--seqlen %" PRId64 " is above the %" PRId64 " positions that the config.json of model %s is made for "
                "(max_position_embeddings)",
                seqlen, setup->model.max_positions, setup->model.name);
    c->seqlen = seqlen;
    c->sequences = tokens / seqlen;
    c->chunk_tokens = sl_chunk_tokens_default(seqlen, c->sequences,
                                              sl_device_chunk_target(sl_device_def_find(setup->device), seqlen));
    if (sl_options_is_set(o, "chunk-tokens")) {
        SL_TRY(at_least(o, "chunk-tokens", 1));
        c->chunk_tokens = sl_options_i64(o, "chunk-tokens");
        if (c->chunk_tokens > seqlen && c->chunk_tokens % seqlen != 0)
            return sl_fail(SL_E_USAGE,
                           "--chunk-tokens %" PRId64 " must be a multiple of --seqlen %" PRId64
                           " (packed) or less than it (sliced)",
                           c->chunk_tokens, seqlen);
        c->chunk_tokens = SL_MIN(c->chunk_tokens, tokens);
    }
    /* The backward of a sequence visits its slices in reverse, so they belong to one round. */
    const int64_t slices = sl_chunking_slices(c), together = sl_options_i64(o, "chunks-per-round");
    if (together % slices != 0)
        return sl_fail(SL_E_USAGE,
                       "--chunks-per-round %" PRId64 " would split a sequence over rounds: its %" PRId64
                       " slices of %" PRId64 " tokens belong together; give a multiple of %" PRId64
                       ", or 0 to let the planner choose",
                       together, slices, c->chunk_tokens, slices);
    return SL_OK;
}

static void resolve_program(const sl_options *o, sl_setup *setup)
{
    sl_program_config *p = &setup->program;
    if (!sl_options_is_set(o, "precision") || !sl_precision_find(sl_options_string(o, "precision"), &p->precision))
        p->precision = sl_device_def_find(setup->device)->precision;
    p->frozen = sl_options_string(o, "freeze");
    p->nondeterministic = sl_options_flag(o, "nondeterministic");
    p->chunks_per_round = sl_options_i64(o, "chunks-per-round");
    p->gated = setup->clip > 0 || setup->on_nan == SL_ON_NAN_SKIP;
    p->token_weights = setup->hooks.data.weighted;
    p->forward_only = setup->hooks.forward_only;
    p->norm = !p->forward_only; /* a gradient that is not finite is noticed in its own step */
    setup->max_documents = setup->mask_documents ? p->chunking.seqlen : 1; /* a document has a token or more */
    sl_setup_shorten(setup, p->chunking.sequences);
}

void sl_setup_shorten(sl_setup *setup, int64_t sequences)
{
    sl_chunking *c = &setup->program.chunking;
    c->sequences = SL_MIN(c->sequences, sequences);
    c->chunk_tokens = SL_MIN(c->chunk_tokens, c->sequences * c->seqlen);
    setup->program.max_segments = SL_MAX(c->chunk_tokens / c->seqlen, 1) * setup->max_documents;
}

static sl_status resolve_device(const sl_options *o, sl_setup *setup)
{
    const char *name = sl_options_string(o, "device");
    setup->hardware = sl_options_string(o, "hw");
    setup->measured = !is(o, "costs", "roofline");
    if (setup->hardware && is(o, "costs", "measured"))
        return sl_fail(SL_E_USAGE, "--costs measured times this machine, --hw %s plans for another: drop one of them",
                       setup->hardware);
    if (setup->hardware && strcmp(setup->hardware, "this") != 0) {
        /* A profile elsewhere: its kind of device decides chunk and precision, whether or not it is present here. */
        sl_hardware hardware;
        SL_TRY(sl_hardware_find(setup->hardware, &hardware));
        SL_TRY(sl_device_check_name(name));
        setup->measured = false;
        bool fixed = strcmp(name, "auto") != 0;
        snprintf(setup->device, sizeof setup->device, "%s", fixed ? name : sl_device_def_for(&hardware)->name);
        return SL_OK;
    }
    const sl_device_class *class = NULL;
    SL_TRY(sl_device_find(name, &class));
    snprintf(setup->device, sizeof setup->device, "%s", class->name);
    if (setup->hardware || !sl_device_def_find(class->name)->computes)
        setup->measured = false;
    return SL_OK;
}

/* Only a file called config.json is the description of the weights beside it. */
static sl_status resolve_weights(const sl_options *o, sl_setup *setup)
{
    const char *model = sl_options_string(o, "model"), *slash;
    char path[SL_MODEL_PATH_BYTES];
    setup->init_from = sl_options_string(o, "init-from");
    setup->from_scratch = sl_options_flag(o, "from-scratch");
    if (setup->init_from && setup->from_scratch)
        return sl_fail(SL_E_USAGE, "--init-from and --from-scratch exclude each other: drop one of them");
    if (!model || sl_model_is_preset(model))
        return SL_OK;
    SL_TRY(sl_model_locate(model, path));
    slash = strrchr(path, '/');
    if (sl_dir_exists(path))
        snprintf(setup->model_folder, sizeof setup->model_folder, "%s", path);
    else if (strcmp(slash ? slash + 1 : path, "config.json") == 0)
        snprintf(setup->model_folder, sizeof setup->model_folder, "%.*s", slash ? SL_MAX((int) (slash - path), 1) : 1,
                 slash ? path : ".");
    return SL_OK;
}

static sl_status resolve_model(const sl_options *o, const sl_hooks *hooks, sl_model *model)
{
    const char *name = sl_options_string(o, "model");
    *model = hooks->model;
    if (name && model->family)
        return sl_fail(SL_E_USAGE, "the job's model comes from a callback: leave out --model, or sl_job_set_model");
    if (!name && !model->family)
        return sl_fail(SL_E_USAGE, "--model is missing: a preset (`sluice models` lists them) or a config.json");
    return name ? sl_model_find(name, model) : SL_OK;
}

static void resolve_budget(const sl_options *o, const char *name, sl_tier tier, sl_setup *setup)
{
    sl_budget budget = sl_options_budget(o, name);
    setup->budget[tier] = budget.bytes;
    setup->share[tier] = budget.share;
    setup->limited[tier] = sl_options_is_set(o, name);
}

sl_status sl_setup_resolve(const sl_job *job, sl_setup *out)
{
    const sl_options *o = job->options;
    sl_setup setup = {.steps = sl_options_i64(o, "steps"), .hooks = job->hooks};
    SL_TRY(check_ranges(o));
    SL_TRY(check_data(o, &job->hooks.data));
    char weights[1024];
    SL_TRY(resolve_model(o, &job->hooks, &setup.model));
    SL_TRY(resolve_weights(o, &setup));
    if (sl_weights_find(&setup, weights) == SL_OK) /* else the run refuses them */
        SL_TRY(sl_tied_head_resolve(weights, &setup.model));
    SL_TRY(sl_job_resolve_lora(o, &setup));
    SL_TRY(resolve_device(o, &setup));
    setup.threads = (int) sl_options_i64(o, "threads");
    setup.seed = (uint64_t) sl_options_i64(o, "seed");
    resolve_budget(o, "device-mem", SL_TIER_DEVICE, &setup);
    resolve_budget(o, "host-mem", SL_TIER_HOST, &setup);
    setup.clip = sl_options_f64(o, "clip");
    setup.on_nan = is(o, "on-nan", "skip") ? SL_ON_NAN_SKIP : SL_ON_NAN_STOP;
    setup.mask_documents = sl_options_flag(o, "mask-documents");
    setup.document_token = sl_options_i64(o, "document-token");
    resolve_schedule(o, &setup);
    SL_TRY(resolve_chunking(o, &setup));
    SL_TRY(sl_job_resolve_optimizers(o, &setup.program));
    resolve_program(o, &setup);
    SL_TRY(sl_model_count(&setup.model, setup.program.chunking.chunk_tokens, setup.program.max_segments));
    setup.fixed_workspace = sl_options_is_set(o, "workspace-mem");
    setup.program.workspace_limit = setup.fixed_workspace ? SL_MAX(sl_options_bytes(o, "workspace-mem"), (size_t) 1)
                                                          : sl_plan_workspace_limit(setup.budget[SL_TIER_DEVICE]);
    setup.out = sl_options_string(o, "out");
    setup.resume = sl_options_flag(o, "resume");
    setup.checkpoint_every = sl_options_i64(o, "checkpoint-every");
    setup.keep = sl_options_i64(o, "keep");
    sl_job_resolve_data(o, &setup);
    SL_TRY(sl_job_resolve_samples(o, &setup));
    setup.companions = sl_companions_present(&setup);
    *out = setup;
    return SL_OK;
}
