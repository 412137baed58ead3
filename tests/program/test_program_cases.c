/* Programs of named configurations: large ones, long sequences, what attention knows of documents, chunkings, faults. */
#include <time.h>

#include "core/fault.h"
#include "model/model.h"
#include "ops/attention.h"
#include "optim/muon.h"
#include "program/program.h"
#include "test.h"

#ifdef __SANITIZE_ADDRESS__
#define SLOW 20
#else
#define SLOW 1
#endif

/* Processor time: other programs are no business of this test's. Best of five. */
static double build_large(int64_t sequences)
{
    sl_model model;
    sl_program_config config = {.chunking = {8192, sequences, 16384},
                                .precision = SL_PRECISION_BF16,
                                .gated = true,
                                .max_segments = 16,
                                .chunks_per_round = 4};
    double best = 1e9;
    CHECK_OK(sl_model_find("llama3-8b", &model));
    for (int turn = 0; turn < 5; turn++) {
        sl_program *p;
        clock_t start = clock();
        CHECK_OK(sl_program_create(&config, sl_build_model, &model, &p));
        best = SL_MIN(best, (double) (clock() - start) / CLOCKS_PER_SEC);
        double want = sl_model_step_flops(&model, 8192, sequences);
        CHECK_NEAR(p->flops, want, 1e-14 * want);
        CHECK_I64(p->n_rounds, sequences / 8);
        CHECK(p->n_signatures < 60);
        sl_program_destroy(p);
    }
    return best;
}

TEST(large_models_are_quick)
{
    double quarter = build_large(16), whole = build_large(64);
    CHECK_MSG(whole < 0.3 * SLOW, "building took %.3f s", whole); /* 10 ms in 2026 */
    CHECK_MSG(whole < 10 * quarter, "four times the chunks take %.1f times as long", whole / quarter); /* 16: square */
    printf("     llama3-8b, 524,288 tokens: %.1f ms, a quarter of them %.1f ms\n", whole * 1e3, quarter * 1e3);
}

/* 1,048,576 tokens of one sequence in 64 slices: K/V of the whole sequence is one object per layer. */
TEST(long_sequences)
{
    sl_model model;
    sl_program_config config = {.chunking = {1048576, 1, 16384}, .precision = SL_PRECISION_BF16, .max_segments = 1};
    sl_program *p;
    int32_t contexts = 0;
    CHECK_OK(sl_model_find("llama3-1.5b", &model));
    CHECK_OK(sl_program_create(&config, sl_build_model, &model, &p));
    CHECK_I64(p->n_chunks, 64);
    for (int32_t i = 0; i < p->n_objects; i++)
        if (p->objects[i].class == SL_CLASS_CONTEXT) {
            bool gradient = p->objects[i].name[0] == 'd';
            CHECK_I64(p->objects[i].bytes, INT64_C(1048576) * 2 * 8 * 64 * (gradient ? 4 : 2));
            contexts++;
        }
    CHECK_I64(contexts, 2 * 16);
    double want = sl_model_step_flops(&model, 1048576, 1);
    CHECK_NEAR(p->flops, want, 1e-14 * want);
    sl_program_destroy(p);
}

TEST(hardware_flops_count_the_scores_again)
{
    sl_model model;
    sl_program_config config = {.chunking = {64, 2, 128}, .max_segments = 8};
    sl_program *p;
    double extra = 0;
    CHECK_OK(sl_model_find("byte-test", &model));
    CHECK_OK(sl_program_create(&config, sl_build_model, &model, &p));
    for (int32_t k = 0; k < p->n_signatures; k++)
        if (sl_op(p->tasks[p->signatures[k].example].op)->category == SL_CAT_ATTENTION)
            extra +=
                (double) p->signatures[k].count * (p->signatures[k].work.hardware_flops - p->signatures[k].work.flops);
    CHECK_NEAR(extra, 2.0 * 2 * 64 * 64 * 64, 0); /* layers x sequences x S*S*a */
    sl_program_destroy(p);
}

/* Kernels may rely on `uniform`, so it is there only when no document boundary can lie within a sequence. */
TEST(attention_knows_its_segments)
{
    const sl_chunking chunkings[] = {{16, 4, 32}, {16, 3, 32}, {16, 4, 16}, {16, 2, 6}};
    for (int64_t i = 0; i < SL_COUNT(chunkings); i++)
        for (int64_t documents = 1; documents <= 3; documents += 2) {
            sl_model model;
            sl_program *p;
            int64_t packed = SL_MAX(1, chunkings[i].chunk_tokens / 16);
            sl_program_config config = {.chunking = chunkings[i], .max_segments = packed * documents};
            CHECK_OK(sl_model_find("byte-test", &model));
            CHECK_OK(sl_program_create(&config, sl_build_model, &model, &p));
            for (int32_t t = 0; t < p->n_tasks; t++)
                if (p->tasks[t].op == SL_OP_ATTENTION) {
                    const sl_task *task = &p->tasks[t];
                    int64_t rows = SL_MIN(16, task->in[1].type.dim[0]);
                    CHECK_I64(sl_attention_attrs(&task->attrs)->uniform, documents == 1 ? rows : 0);
                    CHECK_I64(sl_attention_attrs(&task->attrs)->sequence, 16);
                    CHECK_I64(sl_attention_attrs(&task->attrs)->q_offset, p->chunks[task->chunk].slice_offset);
                }
            sl_program_destroy(p);
        }
}

/* What one chunk's K/V and their gradients are, by whether later slices of the sequence use them. */
static void count_classes(int64_t chunk_tokens, int64_t count[SL_CLASS_COUNT], bool forward)
{
    sl_model model;
    sl_program *p;
    sl_program_config config = {.chunking = {32, 2, chunk_tokens}, .max_segments = 1};
    CHECK_OK(sl_model_find("byte-test", &model));
    CHECK_OK(sl_program_create(&config, sl_build_model, &model, &p));
    for (int32_t t = 0; t < p->n_tasks; t++)
        for (int k = 0; k < SL_MAX_OUT; k++) {
            int32_t object = p->tasks[t].out[k].object;
            if (object >= 0 && (p->tasks[t].phase == SL_PHASE_FORWARD) == forward)
                count[p->objects[object].class]++;
        }
    sl_program_destroy(p);
}

TEST(context_is_what_slices_share)
{
    int64_t whole[2][SL_CLASS_COUNT] = {{0}}, sliced[2][SL_CLASS_COUNT] = {{0}};
    for (int forward = 0; forward < 2; forward++) {
        count_classes(32, whole[forward], forward);
        count_classes(16, sliced[forward], forward);
    }
    CHECK_I64(whole[1][SL_CLASS_CONTEXT] + whole[0][SL_CLASS_CONTEXT], 0);
    CHECK(sliced[1][SL_CLASS_CONTEXT] > 0 && sliced[0][SL_CLASS_CONTEXT] > 0);
    CHECK_I64(whole[1][SL_CLASS_HIDDEN], 0); /* what a forward writes is an activation */
    CHECK_I64(sliced[1][SL_CLASS_HIDDEN], 0);
}

TEST(wrong_chunkings)
{
    sl_model model;
    sl_program *p;
    CHECK_OK(sl_model_find("byte-test", &model));
    const sl_chunking wrong[] = {{0, 1, 1},      {4, 0, 4}, {4, 4, 0}, {4, 4, 6}, {INT64_C(1) << 40, 1 << 20, 4},
                                 {1 << 30, 1, 1}};
    for (int64_t i = 0; i < SL_COUNT(wrong); i++) {
        sl_program_config config = {.chunking = wrong[i], .max_segments = 1};
        CHECK_FAILS(sl_program_create(&config, sl_build_model, &model, &p), SL_E_USAGE);
    }
}

/* Every allocation fails in turn: an ordinary error, and nothing leaks. */
TEST(allocation_faults)
{
    sl_model model;
    sl_program *p;
    sl_program_config config = {.chunking = {16, 3, 32}, .gated = true, .max_segments = 1};
    CHECK_OK(sl_model_find("gpt2", &model));
    model.layers = 2;
    size_t heap = sl_heap_bytes();
    sl_fault_arm(SL_FAULT_ALLOC, 1 << 30);
    CHECK_OK(sl_program_create(&config, sl_build_model, &model, &p));
    int64_t events = sl_fault_events(SL_FAULT_ALLOC);
    sl_program_destroy(p);
    for (int64_t nth = 1; nth <= events; nth++) {
        sl_fault_arm(SL_FAULT_ALLOC, nth);
        CHECK_FAILS(sl_program_create(&config, sl_build_model, &model, &p), SL_E_MEMORY);
        CHECK_I64(sl_heap_bytes(), heap);
    }
    sl_fault_arm(SL_FAULT_ALLOC, 0);
}

TEST(default_chunks)
{
    CHECK_I64(sl_chunk_tokens_default(256, 4, 1024), 1024);
    CHECK_I64(sl_chunk_tokens_default(256, 5, 1024), 3 * 256); /* 3 + 2, not 4 + 1 */
    CHECK_I64(sl_chunk_tokens_default(1024, 3, 1024), 1024);
    CHECK_I64(sl_chunk_tokens_default(1500, 3, 1024), 1500);
    CHECK_I64(sl_chunk_tokens_default(8192, 64, 16384), 16384);
    CHECK_I64(sl_chunk_tokens_default(131072, 1, 1024), 1024);
    CHECK_I64(sl_chunk_tokens_default(3000, 1, 1024), 1024);
    for (int64_t s = 1; s < 5000; s += 37)
        for (int64_t n = 1; n < 20; n++) {
            int64_t chunk = sl_chunk_tokens_default(s, n, 512);
            CHECK(chunk >= 1 && chunk <= 800 && (chunk % s == 0 || chunk < s));
        }
}

/* The matrices that the launches of one layer update, in order. */
static void check_matrices(const char *name, sl_precision precision, const int64_t *matrices, int launches)
{
    sl_model model;
    sl_program_config config = {
        .chunking = {64, 1, 64}, .precision = precision, .max_segments = 1, .optimizer = SL_OPTIMIZER_MUON};
    sl_program *p;
    CHECK_OK(sl_model_find(name, &model));
    CHECK_OK(sl_program_create(&config, sl_build_model, &model, &p));
    const double flops = sl_model_step_flops(&model, 64, 1);
    CHECK_NEAR(p->flops, flops, 1e-14 * flops); /* the model's: an optimizer's own are not */
    int32_t group = -1;
    for (int32_t g = 0; g < p->n_groups && group < 0; g++)
        if (strstr(p->groups[g].name, "attention"))
            group = g;
    REQUIRE(group >= 0);
    int found = 0;
    for (int32_t t = 0; t < p->n_tasks; t++) {
        const sl_task *task = &p->tasks[t];
        if (task->op != SL_OP_MUON || task->out[0].object != p->param_object[group])
            continue;
        const struct sl_muon_attrs *attrs = sl_muon_attrs(&task->attrs);
        CHECK(found < launches);
        CHECK_I64(attrs->matrices, matrices[SL_MIN(found, launches - 1)]);
        CHECK_I64(attrs->rows * attrs->columns * attrs->matrices, sl_type_count(&task->out[0].type));
        CHECK_I64((int64_t) sl_type_count(&task->out[1].type), sl_type_count(&task->out[0].type));
        found++;
    }
    CHECK_I64(found, launches);
    sl_program_destroy(p);
}

/* q, k, v and the output are one launch where they have one shape; fewer K/V heads come between. */
TEST(matrices_of_one_shape_share_a_launch)
{
    check_matrices("small", SL_PRECISION_BF16, (const int64_t[]){4}, 1);
    check_matrices("small", SL_PRECISION_BF16_MASTER, (const int64_t[]){4}, 1);
    check_matrices("llama3-8b", SL_PRECISION_BF16, (const int64_t[]){1, 2, 1}, 3);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(large_models_are_quick);
    RUN(long_sequences);
    RUN(hardware_flops_count_the_scores_again);
    RUN(attention_knows_its_segments);
    RUN(context_is_what_slices_share);
    RUN(wrong_chunkings);
    RUN(allocation_faults);
    RUN(default_chunks);
    RUN(matrices_of_one_shape_share_a_launch);
    return test_end();
}
