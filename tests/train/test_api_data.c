/* Data from a callback: the same sequences in the same order as from files, exact resumes, validation, weights and
 * every mistake. */
#include <math.h>

#include "data/corpus.h"
#include "run_job.h"

/* The corpus of the small jobs in memory, cut as the loader cuts it. */
typedef struct memory {
    int32_t *tokens;
    int64_t sequences, seqlen;
    int64_t calls, validated, last_index, last_epoch;
    int64_t fail_at; /* the call that fails; 0: none */
    sl_status failure;
    const char *message; /* NULL: it says nothing */
    int64_t bad_at;      /* the call that gives a wrong token; 0: none */
    int32_t bad_token;
    float weight;
    bool some; /* of three targets one counts for nothing */
} memory;

static sl_status read_memory(void *user, sl_sequence *s)
{
    memory *m = user;
    CHECK(s->struct_size == sizeof *s && s->index >= 0 && s->index < m->sequences && s->seqlen == m->seqlen);
    m->last_index = s->index;
    m->last_epoch = s->epoch;
    m->validated += s->validation;
    if (++m->calls == m->fail_at)
        return m->message ? sl_error_set(m->failure, m->message) : m->failure;
    memcpy(s->tokens, m->tokens + s->index * s->seqlen, (size_t) (s->seqlen + 1) * sizeof *s->tokens);
    if (m->calls == m->bad_at)
        s->tokens[s->seqlen] = m->bad_token;
    for (int64_t i = 0; s->weights && i < s->seqlen; i++) {
        CHECK(s->weights[i] == 1);
        if (m->weight != 1)
            s->weights[i] = m->weight;
        if (m->some && (s->index + i) % 3 == 1)
            s->weights[i] = 0;
    }
    return SL_OK;
}

static memory open_memory(void)
{
    memory m = {.seqlen = 32, .weight = 1};
    sl_corpus_config config = {.paths = corpus_path(), .vocab = 512, .document_token = -1};
    sl_corpus *corpus;
    CHECK_OK(sl_corpus_open(&config, &corpus));
    m.sequences = (sl_corpus_tokens(corpus) - 1) / m.seqlen;
    CHECK_OK(sl_alloc(&m.tokens, m.sequences * m.seqlen + 1, sizeof *m.tokens));
    CHECK_OK(sl_corpus_read(corpus, 0, m.sequences * m.seqlen + 1, m.tokens));
    sl_corpus_close(corpus);
    return m;
}

static sl_data data_of(memory *m)
{
    return (sl_data){
        .struct_size = sizeof(sl_data), .read = read_memory, .user = m, .identity = "words", .sequences = m->sequences};
}

/* A small job without files. */
static sl_job *data_job(const char *options, const sl_data *data)
{
    static const char *const keys[] = {"model", "byte-test",    "seqlen", "32",      "tokens-per-step",
                                       "192",   "chunk-tokens", "64",     "steps",   "5",
                                       "lr",    "3e-3",         "costs",  "roofline"};
    char copy[1024], *rest = copy;
    sl_job *job;
    CHECK_OK(sl_job_create(&job));
    for (int i = 0; i < SL_COUNT(keys); i += 2)
        CHECK_OK(sl_job_set(job, keys[i], keys[i + 1]));
    CHECK_OK(sl_job_set(job, "device", getenv("SLUICE_TEST_DEVICE") ? getenv("SLUICE_TEST_DEVICE") : "cpu"));
    snprintf(copy, sizeof copy, "%s", options);
    for (char *key; (key = next_word(&rest)) != NULL;)
        CHECK_OK(sl_job_set(job, key, next_word(&rest)));
    CHECK_OK(sl_job_set_data(job, data));
    return job;
}

static void run_data(const char *options, const sl_data *data, outcome *out)
{
    sl_job *job = data_job(options, data);
    sl_trainer *t;
    sl_step_result result = SL_SIZED(sl_step_result);
    memset(out, 0, sizeof *out);
    CHECK_OK(sl_trainer_create(job, &t));
    sl_job_destroy(job);
    uint64_t calls = sl_heap_calls();
    while (!result.done)
        CHECK_OK(sl_trainer_step(t, &result));
    sl_trainer_look(t, &out->view);
    CHECK_MSG(out->view.out || sl_heap_calls() == calls, "steps allocate");
    read_report(t, out);
    sl_trainer_destroy(t);
}

TEST(the_same_as_files)
{
    static const char *const shapes[] = {"", "chunk-tokens 16", "device-mem 600KiB",
                                         "mask-documents true document-token 32", "val-every 2 val-share 0.1"};
    memory m = open_memory();
    sl_data data = data_of(&m);
    for (int i = 0; i < SL_COUNT(shapes); i++) {
        outcome files, callback;
        run_job(shapes[i], 100, &files);
        run_data(shapes[i], &data, &callback);
        CHECK_MSG(same_run(&files, &callback) && files.view.val_loss == callback.view.val_loss, "%s", shapes[i]);
        CHECK(callback.view.data == NULL && callback.view.sequences == files.view.sequences);
    }
    CHECK_I64(m.validated, 0);
    sl_free(m.tokens);
}

/* Sequences in order, epoch after epoch, and validation data of its own. */
TEST(order_and_validation)
{
    memory m = open_memory();
    sl_data data = data_of(&m);
    outcome out, shuffled;
    run_data("steps 3", &data, &shuffled);
    data.in_order = 1;
    data.sequences = 10;
    run_data("steps 3", &data, &out);
    CHECK(!same_run(&out, &shuffled));
    CHECK(m.last_index == 17 % 10 && m.last_epoch == 1);
    data.val_sequences = 7;
    run_data("steps 3 val-every 1 val-steps 5", &data, &out);
    CHECK(m.validated > 0 && isfinite(out.view.val_loss) && out.view.val_sequences == 7 && out.view.sequences == 10);
    sl_free(m.tokens);
}

TEST(weights)
{
    memory m = open_memory();
    sl_data data = data_of(&m);
    outcome plain, weighted;
    run_data("", &data, &plain);
    data.weighted = 1;
    run_data("", &data, &weighted);
    CHECK(same_run(&plain, &weighted));
    m.weight = 2; /* means do not change */
    run_data("", &data, &weighted);
    CHECK(same_run(&plain, &weighted));
    m.some = true;
    run_data("", &data, &weighted);
    CHECK(!same_run(&plain, &weighted));
    outcome sliced, budget;
    run_data("chunk-tokens 16", &data, &sliced);
    run_data("chunk-tokens 16 chunks-per-round 4 device-mem 600KiB", &data, &budget);
    CHECK(same_run(&sliced, &budget));
    sl_free(m.tokens);
}

TEST(resume)
{
    char options[700];
    memory m = open_memory();
    sl_data data = data_of(&m);
    outcome whole, part;
    run_data("steps 6 schedule constant warmup 1", &data, &whole);
    snprintf(options, sizeof options, "steps 4 schedule constant warmup 1 out '%s'", test_path("resumed"));
    run_data(options, &data, &part);
    snprintf(options, sizeof options, "steps 6 schedule constant warmup 1 resume true out '%s'", test_path("resumed"));
    run_data(options, &data, &part);
    CHECK(part.steps == 2 && memcmp(part.loss, whole.loss + 4, 2 * sizeof *part.loss) == 0);
    CHECK_STR(part.hash, whole.hash);
    /* Other data is refused, whatever it differs in, and so are files. */
    sl_data others[] = {data, data, data};
    others[0].identity = "other words";
    others[1].sequences--;
    others[2].in_order = 1;
    snprintf(options, sizeof options, "steps 8 resume true out '%s'", test_path("resumed"));
    for (int i = 0; i < SL_COUNT(others); i++) {
        sl_trainer *t;
        sl_job *job = data_job(options, &others[i]);
        CHECK_FAILS(sl_trainer_create(job, &t), SL_E_USAGE);
        CHECK_CONTAINS(sl_error_message(), "callback words: ");
        CHECK_OK(sl_job_set_data(job, NULL));
        CHECK_OK(sl_job_set(job, "data", corpus_path()));
        CHECK_FAILS(sl_trainer_create(job, &t), SL_E_USAGE);
        CHECK_CONTAINS(sl_error_message(), "other data");
        sl_job_destroy(job);
    }
    sl_free(m.tokens);
}

/* The step that met a failure can be tried again, to the same bits. */
TEST(failures)
{
    memory m = open_memory();
    sl_data data = data_of(&m);
    outcome plain, out = {0};
    run_data("", &data, &plain);
    m.calls = 0;
    m.fail_at = 9;
    m.failure = SL_E_IO;
    m.message = "the disk is full of water";
    sl_job *job = data_job("", &data);
    sl_trainer *t;
    sl_step_result result = SL_SIZED(sl_step_result);
    CHECK_OK(sl_trainer_create(job, &t));
    sl_job_destroy(job);
    CHECK_OK(sl_trainer_step(t, &result));
    CHECK_FAILS(sl_trainer_step(t, &result), SL_E_IO);
    CHECK_STR(sl_error_message(), "the disk is full of water");
    m.fail_at = m.calls + 2;
    m.message = NULL;
    CHECK_FAILS(sl_trainer_step(t, &result), SL_E_IO);
    CHECK_CONTAINS(sl_error_message(), "did not say why");
    m.bad_at = m.calls + 1;
    m.bad_token = 256;
    CHECK_FAILS(sl_trainer_step(t, &result), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "token 256 at 32 of training sequence");
    m.bad_at = m.calls + 1;
    m.bad_token = -1; /* what a callback leaves out */
    CHECK_FAILS(sl_trainer_step(t, &result), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "token -1");
    while (!result.done)
        CHECK_OK(sl_trainer_step(t, &result));
    read_report(t, &out);
    CHECK(same_run(&plain, &out));
    sl_trainer_destroy(t);
    /* Weights that are no weights. */
    static const float wrong[] = {-1, NAN, INFINITY};
    data.weighted = 1;
    for (int i = 0; i < SL_COUNT(wrong); i++) {
        m.weight = wrong[i];
        job = data_job("", &data);
        CHECK_OK(sl_trainer_create(job, &t));
        sl_job_destroy(job);
        CHECK_FAILS(sl_trainer_step(t, &result), SL_E_USAGE);
        CHECK_CONTAINS(sl_error_message(), "to target 0 of training sequence");
        sl_trainer_destroy(t);
    }
    sl_free(m.tokens);
}

static void check_refused(const char *options, const sl_data *data, const char *message)
{
    sl_job *job = data_job(options, data);
    sl_trainer *t;
    CHECK_FAILS(sl_trainer_create(job, &t), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), message);
    sl_job_destroy(job);
}

TEST(misuse)
{
    memory m = open_memory();
    sl_data good = data_of(&m), bad[8];
    for (int i = 0; i < SL_COUNT(bad); i++)
        bad[i] = good;
    bad[0].struct_size = 0;
    bad[1].read = NULL;
    bad[2].identity = NULL;
    bad[3].identity = "";
    bad[4].identity = "an identity that is one byte longer than it can be";
    bad[5].sequences = 0;
    bad[6].sequences = (INT64_C(1) << 48) + 1;
    bad[7].val_sequences = -1;
    sl_job *job = data_job("", &good);
    for (int i = 0; i < SL_COUNT(bad); i++)
        CHECK_FAILS(sl_job_set_data(job, &bad[i]), SL_E_USAGE);
    /* A later header: fields that are set and not known here are refused, others are not. */
    struct {
        sl_data known;
        int64_t later;
    } later = {.known = good};
    later.known.struct_size = sizeof later;
    CHECK_OK(sl_job_set_data(job, &later.known));
    later.later = 1;
    CHECK_FAILS(sl_job_set_data(job, &later.known), SL_E_UNSUPPORTED);
    sl_job_destroy(job);
    check_refused("data x", &good, "leave out --data");
    check_refused("val-every 1 val-data x", &good, "leave out --data");
    check_refused("val-every 1 val-share 0", &good, "nothing to validate on");
    check_refused("mask-documents true", &good, "the data callback does not say which token");
    good.sequences = 1;
    check_refused("val-every 1", &good, "the data callback holds 33 tokens");
    check_refused("", NULL, "--data is missing");
    sl_free(m.tokens);
}

/* A stream without end, and a prediction, which asks for no sequence. */
TEST(without_end)
{
    memory m = open_memory();
    sl_data data = data_of(&m);
    sl_prediction *prediction;
    sl_prediction_figures figures = SL_SIZED(sl_prediction_figures);
    outcome out;
    data.sequences = INT64_C(1) << 48;
    data.in_order = 1;
    run_data("", &data, &out);
    CHECK_I64(m.last_index, 29);
    m.calls = 0;
    data.weighted = 1;
    sl_job *job = data_job("val-every 1", &data);
    CHECK_OK(sl_prediction_create(job, &prediction));
    sl_job_destroy(job);
    CHECK_OK(sl_prediction_get(prediction, &figures));
    CHECK(figures.feasible && m.calls == 0);
    sl_prediction_destroy(prediction);
    sl_free(m.tokens);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(the_same_as_files);
    RUN(order_and_validation);
    RUN(weights);
    RUN(resume);
    RUN(failures);
    RUN(misuse);
    RUN(without_end);
    return test_end();
}
