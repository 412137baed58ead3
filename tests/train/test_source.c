/* A run over a source of its own: what the source says of targets is what counts, and a resumed run asks it to go on where it stood. */
#include "data/loader.h"
#include "run_job.h"

/* The files of the small jobs, with something to say about each target. */
typedef struct source {
    sl_source base;
    sl_source *files;
    float weight; /* of the tokens that count */
    bool some;    /* of three tokens one counts for nothing ... */
    bool ignored; /* ... because its target is ignored */
    int64_t sought;
} source;

static sl_status fill(sl_source *base, sl_split split, const sl_batch *batch)
{
    source *s = (source *) base;
    float *weights = batch->input[SL_INPUT_TOKEN_WEIGHTS].data;
    int32_t *targets = batch->input[SL_INPUT_TARGETS].data;
    SL_TRY(s->files->class->fill(s->files, split, batch));
    for (int64_t i = 0; i < batch->n_sequences * batch->tokens_each; i++) {
        bool counts = !s->some || (batch->position + batch->slice_offset + i) % 3 != 1;
        if (weights)
            weights[i] = counts || s->ignored ? s->weight : 0;
        if (!counts && s->ignored)
            targets[i] = SL_TARGET_IGNORED;
    }
    return SL_OK;
}

static sl_status seek(sl_source *base, int64_t position)
{
    ((source *) base)->sought = position;
    return SL_OK;
}

static void leave_open(sl_source *base)
{
    CHECK_MSG(false, "the run closed a source that is not its own: %s", base->identity);
}

static source open_source(bool weighted)
{
    static const sl_source_class class = {.fill = fill, .seek = seek, .close = leave_open};
    source s = {.weight = 1, .sought = -1};
    sl_loader_config config = {.data = corpus_path(),
                               .val_share = 0.1,
                               .seqlen = 32,
                               .vocab = 512,
                               .document_token = -1,
                               .max_documents = 1,
                               .seed = 1};
    CHECK_OK(sl_loader_open(&config, &s.files));
    s.base = *s.files;
    s.base.class = &class;
    if (weighted)
        s.base.kinds |= 1u << SL_INPUT_TOKEN_WEIGHTS;
    return s;
}

static void run_source(source *s, const char *options, outcome *out)
{
    sl_job *job = make_job(options);
    sl_trainer *trainer;
    sl_step_result result = SL_SIZED(sl_step_result);
    memset(out, 0, sizeof *out);
    job->hooks.source = &s->base;
    CHECK_OK(sl_trainer_create(job, &trainer));
    sl_job_destroy(job);
    uint64_t calls = sl_heap_calls();
    for (int64_t i = 0; !result.done; i++)
        CHECK_OK(sl_trainer_step(trainer, &result));
    sl_trainer_look(trainer, &out->view);
    CHECK_MSG(out->view.out || sl_heap_calls() == calls, "steps allocate");
    read_report(trainer, out);
    sl_trainer_destroy(trainer);
}

#define VALIDATED "val-every 5 val-share 0.1"

TEST(equal_weights_change_nothing)
{
    outcome plain, out;
    run_job(VALIDATED, 100, &plain);
    for (int weight = 0; weight <= 2; weight++) {
        source s = open_source(weight > 0);
        s.weight = (float) weight;
        run_source(&s, VALIDATED, &out);
        CHECK_MSG(same_run(&plain, &out) && plain.view.val_loss == out.view.val_loss, "weight %d", weight);
        CHECK_I64(s.sought, 0);
        sl_source_close(s.files);
    }
}

/* Packed chunks, slices, and slices under a budget in which next to nothing stays. */
TEST(a_weight_of_zero_is_an_ignored_target)
{
    static const char *const shapes[] = {VALIDATED, VALIDATED " chunk-tokens 16",
                                         VALIDATED " chunk-tokens 16 chunks-per-round 4"};
    outcome out[3], plain;
    run_job(VALIDATED, 100, &plain);
    for (int i = 0; i < SL_COUNT(shapes); i++) {
        source weighted = open_source(true), both = open_source(true), ignored = open_source(false);
        weighted.some = both.some = ignored.some = both.ignored = ignored.ignored = true;
        run_source(&weighted, shapes[i], &out[0]);
        run_source(&both, shapes[i], &out[1]);
        run_source(&ignored, shapes[i], &out[2]);
        CHECK(same_run(&out[0], &out[1]) && out[0].view.val_loss == out[1].view.val_loss);
        CHECK(same_run(&out[0], &out[2]) && out[0].view.val_loss == out[2].view.val_loss);
        CHECK(!same_run(&out[0], &plain));
        /* The mean over what counts. */
        CHECK(out[0].loss[0] > 0.9 * plain.loss[0] && out[0].loss[0] < 1.1 * plain.loss[0]);
        sl_source_close(weighted.files);
        sl_source_close(both.files);
        sl_source_close(ignored.files);
    }
}

TEST(resume_goes_on_where_it_stood)
{
    char options[700];
    outcome whole, part;
    source s = open_source(true);
    s.some = true;
    run_source(&s, "steps 6 schedule constant warmup 1", &whole);
    snprintf(options, sizeof options, "steps 4 schedule constant warmup 1 out '%s' checkpoint-every 2",
             test_path("resumed"));
    run_source(&s, options, &part);
    CHECK(memcmp(part.loss, whole.loss, 4 * sizeof *part.loss) == 0);
    snprintf(options, sizeof options, "steps 6 schedule constant warmup 1 resume true out '%s'", test_path("resumed"));
    run_source(&s, options, &part);
    CHECK_I64(s.sought, 4 * 6);
    CHECK(part.steps == 2 && memcmp(part.loss, whole.loss + 4, 2 * sizeof *part.loss) == 0);
    CHECK_STR(part.hash, whole.hash);

    snprintf(s.base.identity, sizeof s.base.identity, "another");
    snprintf(options, sizeof options, "steps 8 schedule constant warmup 1 resume true out '%s'", test_path("resumed"));
    sl_job *job = make_job(options);
    sl_trainer *trainer;
    job->hooks.source = &s.base;
    CHECK_FAILS(sl_trainer_create(job, &trainer), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "other data");
    sl_job_destroy(job);
    sl_source_close(s.files);
}

static void check_refused(source *s, const char *options, const char *message)
{
    sl_job *job = make_job(options);
    sl_trainer *trainer;
    job->hooks.source = &s->base;
    CHECK_FAILS(sl_trainer_create(job, &trainer), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), message);
    sl_job_destroy(job);
}

TEST(what_a_source_lacks)
{
    source s = open_source(false);
    s.base.kinds = 1u << SL_INPUT_TOKENS | 1u << SL_INPUT_POSITIONS | 1u << SL_INPUT_SEGMENTS;
    check_refused(&s, "", "reads targets");
    s.base.sequences[SL_SPLIT_VALIDATION] = 0;
    check_refused(&s, VALIDATED, "there is none");
    sl_source_close(s.files);
}

/* Without targets that count there is nothing to learn, and nothing that is not a number. */
TEST(nothing_counts)
{
    outcome out;
    source s = open_source(true);
    s.weight = 0;
    run_source(&s, "steps 2 weight-decay 0", &out);
    CHECK(out.loss[0] == 0 && out.loss[1] == 0);
    sl_source_close(s.files);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(equal_weights_change_nothing);
    RUN(a_weight_of_zero_is_an_ignored_target);
    RUN(resume_goes_on_where_it_stood);
    RUN(what_a_source_lacks);
    RUN(nothing_counts);
    return test_end();
}
