/*
 * Training with data of your own: sequences come from a callback, the run stops when validation no longer improves,
 * and a weight is read by its name.
 *
 *     cc train.c -o train $(pkg-config --cflags --libs sluice)
 *     ./train book.txt                                  # any text of some thousand characters
 *     ./train book.txt device-mem 2MiB out runs/book    # options of `sluice train`, in pairs
 */
#include <sluice/sluice.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQLEN = 64, PATIENCE = 3 };

static sl_status check(sl_status status, const char *what)
{
    if (status != SL_OK)
        fprintf(stderr, "%s: %s\n", what, sl_error_message());
    return status;
}

/* ---- data ---- */

typedef struct text {
    unsigned char *bytes;
    int64_t sequences, train; /* of SEQLEN tokens and a target; the first ones are for training */
} text;

/* Sequence `index` of either part. The same index gives the same tokens whenever it is asked for. */
static sl_status read_sequence(void *user, sl_sequence *s)
{
    const text *t = user;
    int64_t first = (s->index + (s->validation ? t->train : 0)) * SEQLEN;
    for (int64_t i = 0; i <= s->seqlen; i++)
        s->tokens[i] = t->bytes[first + i];
    return SL_OK;
}

static int open_text(const char *path, text *t)
{
    long size = 0;
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) || (size = ftell(file)) <= 0 || fseek(file, 0, SEEK_SET))
        return 0;
    t->bytes = malloc((size_t) size);
    t->sequences = (size - 1) / SEQLEN;
    t->train = t->sequences - t->sequences / 10;
    int read = t->bytes && fread(t->bytes, 1, (size_t) size, file) == (size_t) size;
    fclose(file);
    return read && t->sequences >= 10;
}

/* ---- the run ---- */

/* Defaults, then what the command line says. */
static sl_status describe(sl_job *job, text *t, int count, char **options)
{
    static const char *const defaults[][2] = {{"model", "byte-nano"},      {"seqlen", "64"}, {"steps", "200"},
                                              {"tokens-per-step", "1024"}, {"lr", "1e-3"},   {"val-every", "10"},
                                              {"mask-documents", "false"}};
    sl_data data = SL_SIZED(sl_data);
    sl_status status = SL_OK;
    data.read = read_sequence;
    data.user = t;
    data.identity = "text of examples/train.c";
    data.sequences = t->train;
    data.val_sequences = t->sequences - t->train;
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults && status == SL_OK; i++)
        status = sl_job_set(job, defaults[i][0], defaults[i][1]);
    for (int i = 0; i + 1 < count && status == SL_OK; i += 2)
        status = sl_job_set(job, options[i], options[i + 1]);
    return status == SL_OK ? sl_job_set_data(job, &data) : status;
}

/* Until all steps are done, or validation has not improved for PATIENCE times. */
static sl_status run(sl_trainer *trainer)
{
    sl_step_result step = SL_SIZED(sl_step_result);
    sl_trainer_figures now = SL_SIZED(sl_trainer_figures);
    double best = INFINITY;
    int64_t validated = 0;
    for (int worse = 0; !step.done && worse < PATIENCE;) {
        sl_status status = sl_trainer_step(trainer, &step);
        if (status == SL_OK)
            status = sl_trainer_get(trainer, &now);
        if (status != SL_OK)
            return status;
        if (now.val_step != step.step)
            continue;
        worse = now.val_loss < best ? 0 : worse + 1;
        best = fmin(best, now.val_loss);
        validated++;
        printf("step %lld: loss %.6f, validation %.6f\n", (long long) step.step, step.loss, now.val_loss);
    }
    printf("%s after step %lld and %lld validations, best loss %.6f\n", step.done ? "done" : "stopped",
           (long long) step.step, (long long) validated, best);
    return SL_OK;
}

/* The largest element of the embedding. */
static sl_status look(sl_trainer *trainer)
{
    const char *name = "model.embed_tokens.weight";
    sl_parameter_info info = SL_SIZED(sl_parameter_info);
    sl_status status = SL_OK;
    for (int64_t i = 0; i < sl_trainer_parameter_count(trainer) && status == SL_OK; i++) {
        status = sl_trainer_parameter(trainer, i, &info);
        if (status == SL_OK && strcmp(info.name, name) == 0)
            break;
    }
    float *weights = malloc((size_t) info.count * sizeof *weights), largest = 0;
    if (status == SL_OK)
        status =
            sl_trainer_read_parameter(trainer, name, SL_PARAMETER_F32, weights, (size_t) info.count * sizeof *weights);
    for (int64_t i = 0; i < info.count && status == SL_OK; i++)
        largest = fmaxf(largest, fabsf(weights[i]));
    printf("%s [%lld, %lld]: largest element %.9g\n", name, (long long) info.rows, (long long) info.columns,
           (double) largest);
    free(weights);
    return status;
}

int main(int argc, char **argv)
{
    text t = {0};
    sl_job *job = NULL;
    sl_trainer *trainer = NULL;
    if (argc < 2 || argc % 2 || !open_text(argv[1], &t)) {
        fprintf(stderr, "usage: train FILE [OPTION VALUE]..., FILE being a text of at least 641 bytes\n");
        return 2;
    }
    sl_status status = check(sl_job_create(&job), "job");
    if (status == SL_OK)
        status = check(describe(job, &t, argc - 2, argv + 2), "options");
    if (status == SL_OK)
        status = check(sl_trainer_create(job, &trainer), "trainer");
    if (status == SL_OK)
        status = check(run(trainer), "step");
    if (status == SL_OK)
        status = check(look(trainer), "weights");
    sl_trainer_destroy(trainer);
    sl_job_destroy(job);
    free(t.bytes);
    return status != SL_OK;
}
