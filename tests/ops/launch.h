/* A launch with memory for tests: every operand in one block, guard bytes around each. Outputs that are not read start as
 * NaN patterns, so that an element a kernel forgets is seen. */
#ifndef SL_TESTS_OPS_LAUNCH_H
#define SL_TESTS_OPS_LAUNCH_H

#include "core/mem.h"
#include "ops/common.h"
#include "ops/fill.h"
#include "test.h"

#define GUARD_BYTES 256
#define GUARD_VALUE 0xA5

typedef struct test_launch {
    sl_launch launch;
    unsigned char *memory;
    size_t bytes;
} test_launch;

static inline size_t test_span(size_t bytes)
{
    return SL_ROUND_UP(bytes, (size_t) GUARD_BYTES) + GUARD_BYTES;
}

/* Operand k: inputs first, then outputs, then the workspace as a last one. */
static inline void *test_region(const test_launch *t, int k, size_t *bytes)
{
    const sl_launch *launch = &t->launch;
    if (k < SL_MAX_IN + SL_MAX_OUT) {
        const sl_operand *x = k < SL_MAX_IN ? &launch->in[k] : &launch->out[k - SL_MAX_IN];
        *bytes = x->data ? sl_type_bytes(&x->type) : 0;
        return x->data;
    }
    *bytes = launch->workspace_bytes;
    return launch->workspace;
}
#define TEST_REGIONS (SL_MAX_IN + SL_MAX_OUT + 1)

/* Lays out the operands of t->launch (types set) and `workspace_bytes` from `base`; NULL: only counts the bytes. */
static inline size_t test_layout(test_launch *t, size_t workspace_bytes, unsigned char *base)
{
    size_t at = GUARD_BYTES;
    for (int k = 0; k < SL_MAX_IN + SL_MAX_OUT; k++) {
        sl_operand *x = k < SL_MAX_IN ? &t->launch.in[k] : &t->launch.out[k - SL_MAX_IN];
        x->data = base && x->type.rank ? base + at : NULL;
        at += x->type.rank ? test_span(sl_type_bytes(&x->type)) : 0;
    }
    t->launch.workspace = base && workspace_bytes ? base + at : NULL;
    t->launch.workspace_bytes = workspace_bytes;
    return at + (workspace_bytes ? test_span(workspace_bytes) : 0);
}

static inline size_t test_reference_workspace(const sl_launch *launch)
{
    const sl_op_def *def = sl_op(launch->op);
    return def->workspace ? def->workspace(launch) : 0;
}

static inline void test_allocate(test_launch *t, size_t workspace_bytes)
{
    t->bytes = test_layout(t, workspace_bytes, NULL);
    CHECK_OK(sl_alloc_aligned(&t->memory, t->bytes, 1, 256));
    test_layout(t, workspace_bytes, t->memory);
    memset(t->memory, GUARD_VALUE, t->bytes);
    for (int k = SL_MAX_IN; k < TEST_REGIONS; k++) {
        size_t bytes;
        void *data = test_region(t, k, &bytes);
        if (bytes)
            memset(data, 0xff, bytes);
    }
}

/* The launch of a case, filled. */
static inline void test_prepare(test_launch *t, sl_op_id op, const sl_op_case *op_case, uint64_t seed)
{
    CHECK_OK(sl_op_case_launch(op, op_case, &t->launch));
    test_allocate(t, test_reference_workspace(&t->launch));
    CHECK_OK(sl_op_fill(&t->launch, seed, op_case));
}

static inline void test_release(test_launch *t)
{
    sl_free(t->memory);
    t->memory = NULL;
}

/* No byte outside the operands may have changed. */
static inline bool test_guards_intact(const test_launch *t)
{
    const unsigned char *next = t->memory, *end = t->memory + t->bytes;
    for (int k = 0; k < TEST_REGIONS; k++) {
        size_t bytes;
        const unsigned char *data = test_region(t, k, &bytes);
        if (!bytes)
            continue;
        for (; next < data; next++)
            if (*next != GUARD_VALUE)
                return false;
        next = data + bytes;
    }
    for (; next < end; next++)
        if (*next != GUARD_VALUE)
            return false;
    return true;
}

/* Largest difference relative to the largest magnitude of `want`; infinite where one of them is NaN and the other not, or
 * an infinity differs. Operands are of order one, so what is under a hundredth is no measure: it may be zero by cancellation. */
static inline double test_error(const sl_operand *got, const sl_operand *want)
{
    double difference = 0, largest = 0;
    for (int64_t i = 0; i < sl_type_count(&want->type); i++) {
        double a = (double) sl_get(got, i), b = (double) sl_get(want, i);
        if (isnan(a) != isnan(b) || isinf(a) != isinf(b))
            return INFINITY;
        if (!isfinite(b)) {
            difference = isinf(b) && a != b ? INFINITY : difference;
            continue;
        }
        difference = fmax(difference, fabs(a - b));
        largest = fmax(largest, fabs(b));
    }
    return difference == 0 ? 0 : difference / fmax(largest, 0.01);
}

#endif
