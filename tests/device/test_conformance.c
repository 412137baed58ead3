/*
 * THE conformance program: every case of every op, through every device and every kernel, against the op's reference. It reads the
 * tables (ops.def, kernels.def, the device classes), so a new op, kernel or device is tested without an edit here.
 *
 * For each case and contender:
 *   - every output within the op's tolerance of the reference (0: the same bits), no element forgotten, NaN patterns underneath;
 *   - every element within that tolerance of its own magnitude and sensitivity (ops/sensitivity.h), or a multiple of it where
 *     products are rounded to bf16 on the way or functions are approximate;
 *   - guard bytes around operands and workspace untouched, inputs unchanged;
 *   - the same bits again at another address and on a dirty workspace, and with the least workspace the kernel can do with;
 *     not where the case allows sums in any order;
 *   - the same bits with 1, 2 and 3 threads;
 *   - what a backward makes again has the forward's bits, also in the place of the gradient that it reads.
 * Contenders: each device class as it dispatches, for the CPU once per instruction set; and each CPU kernel by itself, also
 * those that dispatch would pass over.
 *
 *   test_conformance [part of an op's name]
 */
#include "core/hash.h"
#include "core/pool.h"
#include "device/cpu/kernels/kernel.h"
#include "device/cuda_expected.h"
#include "device/device.h"
#include "ops/attention.h"
#include "ops/sensitivity.h"
#include "optim/optimizer.h"

#define ARENA_BYTES ((size_t) 48 << 20)
#define SHIFT ((size_t) 3 * SL_ALIGN) /* of the second run */
static const int thread_counts[] = {1, 2, 3};

/* One case: the operands' bytes before the launch, and the launch after the reference ran on it. */
typedef struct specimen {
    sl_op_id op;
    const sl_op_case *op_case;
    test_launch want;
    unsigned char *start;
    size_t operand_bytes; /* of start, guards included, without workspace */
    test_sensitivity sensitivity;
    uint64_t bits; /* of the current contender's first result; 0: none yet */
} specimen;

static specimen *specimens;
static int64_t n_specimens;
static unsigned char *staging; /* host copy of an arena's used part */
static double worst[SL_OP_COUNT][2], worst_element[SL_OP_COUNT][2];
static int64_t runs[SL_OP_COUNT];

static void add_specimen(sl_op_id op, const sl_op_case *op_case, specimen *s)
{
    *s = (specimen){.op = op, .op_case = op_case};
    test_prepare(&s->want, op, op_case, (uint64_t) op * 1000 + (uint64_t) (op_case - sl_op(op)->cases));
    test_launch without = s->want;
    s->operand_bytes = test_layout(&without, 0, NULL);
    CHECK_OK(sl_alloc(&s->start, s->operand_bytes, 1));
    memcpy(s->start, s->want.memory, s->operand_bytes);
    sl_op(op)->reference(&s->want.launch);
    CHECK_MSG(test_guards_intact(&s->want), "%s %s: the reference wrote outside its operands", sl_op(op)->name,
              op_case->name);
    if (sl_op(op)->tolerance[0] > 0 || sl_op(op)->tolerance[1] > 0) /* else only the same bits will do */
        test_sense(&s->want, s->start, s->operand_bytes, &s->sensitivity);
}

static void make_specimens(void)
{
    int64_t count = 0;
    for (int op = 0; op < SL_OP_COUNT; op++)
        count += sl_op((sl_op_id) op)->n_cases;
    CHECK_OK(sl_alloc(&specimens, count, sizeof *specimens));
    for (int op = 0; op < SL_OP_COUNT; op++) {
        const sl_op_def *def = sl_op((sl_op_id) op);
        for (int64_t c = 0; c < def->n_cases; c++)
            if (!test_filter || strstr(def->name, test_filter))
                add_specimen((sl_op_id) op, &def->cases[c], &specimens[n_specimens++]);
    }
    CHECK_OK(sl_alloc_aligned(&staging, ARENA_BYTES, 1, 256));
}

static void free_specimens(void)
{
    for (int64_t i = 0; i < n_specimens; i++) {
        sl_free(specimens[i].start);
        test_sensitivity_free(&specimens[i].sensitivity);
        test_release(&specimens[i].want);
    }
    sl_free(specimens);
    sl_free(staging);
}

/* The specimen's launch laid out at `base` of some memory, its content in `staging`. */
static void stage(const specimen *s, unsigned char *base, size_t workspace_bytes, int dirt, test_launch *t)
{
    t->launch = s->want.launch;
    t->bytes = test_layout(t, workspace_bytes, base);
    t->memory = staging;
    REQUIRE(t->bytes + SHIFT <= ARENA_BYTES);
    memset(staging, GUARD_VALUE, t->bytes);
    memcpy(staging, s->start, s->operand_bytes);
    if (workspace_bytes)
        memset(staging + s->operand_bytes, dirt, workspace_bytes);
}

static void check_inputs(const specimen *s, const sl_launch *got, const char *who)
{
    for (int i = 0; i < SL_MAX_IN; i++) {
        const sl_operand *x = &s->want.launch.in[i];
        const unsigned char *before = x->data ? s->start + ((unsigned char *) x->data - s->want.memory) : NULL;
        CHECK_MSG(!x->data || memcmp(got->in[i].data, before, sl_type_bytes(&x->type)) == 0,
                  "%s: %s %s: changed its input %d", who, sl_op(s->op)->name, s->op_case->name, i);
    }
}

/* By dtype of the launch; but f32 by-products of a bf16 launch (statistics, losses) come from exact inputs and are held to f32's
 * figure, with room for cancellation. Sums of gradients may have gone through bf16 factors. */
static double tolerance_of(const specimen *s, int k, bool *bf16)
{
    const sl_op_def *def = sl_op(s->op);
    bool by_product =
        s->want.launch.out[k].type.dtype == SL_F32 && !(def->can_accumulate >> k & 1u) && !def->narrow_inside;
    bool narrow = s->want.launch.in[0].type.dtype == SL_BF16;
    *bf16 = narrow && !by_product;
    return narrow && by_product ? 10 * def->tolerance[0] : def->tolerance[narrow];
}

/* By how much more than the tolerance of its tensor an element may be off. The CPU's vectors need next to nothing: the angle of a
 * rotation is rounded too, and no operand shows that. Matrix units round probabilities and their gradients to bf16; a GPU's erf is exact
 * beside 1, not in the tail of GELU, and its fast exponential loses bits far from 0. An element that is wrong is off by its whole
 * magnitude, thousands of f32 tolerances. */
static const double vector_margin[2] = {2, 1}, matrix_margin[2] = {16, 4}; /* f32, bf16 */
static const double *margin = vector_margin;

static void check_elements(const specimen *s, int k, const sl_operand *got, const char *who)
{
    bool bf16;
    int64_t at;
    const sl_operand *want = &s->want.launch.out[k];
    double allowed = tolerance_of(s, k, &bf16);
    if (allowed == 0)
        return;
    allowed *= margin[bf16];
    double error = test_element_error(got, want, s->sensitivity.of[k], &at);
    worst_element[s->op][s->want.launch.in[0].type.dtype == SL_BF16] =
        fmax(worst_element[s->op][s->want.launch.in[0].type.dtype == SL_BF16], error);
    CHECK_MSG(error <= allowed,
              "%s: %s %s: output %d: element %lld is %.9g, not %.9g: off by %.3g of its magnitude, allowed %.3g", who,
              sl_op(s->op)->name, s->op_case->name, k, (long long) at, (double) sl_get(got, at),
              (double) sl_get(want, at), error, allowed);
}

/* What came back lies in `staging`; `t` still points to where it ran. */
static void check_op_case(specimen *s, test_launch *t, const char *who)
{
    const sl_op_def *def = sl_op(s->op);
    int bf16 = s->want.launch.in[0].type.dtype == SL_BF16;
    test_layout(t, t->launch.workspace_bytes, staging);
    CHECK_MSG(test_guards_intact(t), "%s: %s %s: wrote outside its operands", who, def->name, s->op_case->name);
    check_inputs(s, &t->launch, who);
    uint64_t bits = 1;
    for (int k = 0; k < def->n_out; k++) {
        const sl_operand *want = &s->want.launch.out[k], *got = &t->launch.out[k];
        if (!want->data)
            continue;
        bool narrow;
        double error = test_error(got, want), tolerance = tolerance_of(s, k, &narrow);
        if (tolerance == 0 && memcmp(got->data, want->data, sl_type_bytes(&want->type)) != 0)
            error = fmax(error, 1e-45);
        worst[s->op][bf16] = fmax(worst[s->op][bf16], error);
        CHECK_MSG(error <= tolerance, "%s: %s %s: output %d is off by %.3g of its largest value, allowed %.3g", who,
                  def->name, s->op_case->name, k, error, tolerance);
        check_elements(s, k, got, who);
        bits = sl_hash64(got->data, sl_type_bytes(&want->type), bits);
    }
    bool any = s->op == SL_OP_ATTENTION_BWD && sl_attention_attrs(&s->want.launch.attrs)->nondeterministic;
    CHECK_MSG(any || !s->bits || s->bits == bits, "%s: %s %s: other bits than the first run of this contender", who,
              def->name, s->op_case->name);
    s->bits = bits;
    runs[s->op]++;
}

static void forget_bits(void)
{
    for (int64_t i = 0; i < n_specimens; i++)
        specimens[i].bits = 0;
}

/* ---- through the device contract ---- */

/* Updates run near host memory too, and must give the same bits there, unless their bits are the device's own. */
static bool runs_on_host(sl_op_id op)
{
    for (int i = 0; i < SL_OPTIMIZER_COUNT; i++)
        if (sl_optimizer_of((sl_optimizer) i)->op == op)
            return !sl_optimizer_of((sl_optimizer) i)->device_only;
    return sl_op(op)->category == SL_CAT_OPTIMIZER || op == SL_OP_SUM_SQUARES;
}

static void run_on_device(sl_device *device, sl_stream stream, specimen *s, size_t shift, int dirt, size_t limit,
                          const char *who)
{
    const sl_device_class *class = device->class;
    sl_tier tier = stream == SL_STREAM_HOST ? SL_TIER_HOST : SL_TIER_DEVICE;
    unsigned char *base = (unsigned char *) class->arena(device, tier) + shift;
    test_launch t = {0};
    sl_span span;
    sl_launch types = s->want.launch;
    types.workspace_bytes = limit;
    size_t workspace = class->workspace(device, &types, stream);
    stage(s, base, workspace, dirt, &t);
    CHECK_OK(class->write(device, tier, base, staging, t.bytes));
    CHECK_OK(class->step_begin(device));
    CHECK_OK(class->launch(device, stream, &t.launch, &span));
    CHECK_OK(class->step_end(device));
    CHECK_OK(class->read(device, tier, staging, base, t.bytes));
    CHECK_MSG(span.end >= span.start && span.start >= 0, "%s: %s: ran from %g to %g", who, sl_op(s->op)->name,
              span.start, span.end);
    check_op_case(s, &t, who);
}

/* Whether the kernel takes less workspace when asked to. */
static bool is_elastic(sl_device *device, const specimen *s)
{
    sl_launch types = s->want.launch;
    types.workspace_bytes = 0;
    size_t likes = device->class->workspace(device, &types, SL_STREAM_COMPUTE);
    types.workspace_bytes = 1;
    return device->class->workspace(device, &types, SL_STREAM_COMPUTE) < likes;
}

/* `s`, a backward that makes its forward's value again: in the place of its first input, against the forward itself. */
static void check_rematerialize(sl_device *device, const specimen *s, const char *who)
{
    const sl_device_class *class = device->class;
    const int k = sl_op(s->op)->rematerialized_out;
    test_launch t = {0};
    sl_span span;
    REQUIRE(s->op == SL_OP_SWIGLU_BWD);
    stage(s, class->arena(device, SL_TIER_DEVICE), class->workspace(device, &s->want.launch, SL_STREAM_COMPUTE), 0, &t);
    sl_launch backward = t.launch;
    sl_launch forward = {.op = SL_OP_SWIGLU, .attrs = t.launch.attrs, .in = {t.launch.in[1]}, .out = {t.launch.out[k]}};
    backward.out[k].data = backward.in[0].data;
    CHECK_OK(class->write(device, SL_TIER_DEVICE, class->arena(device, SL_TIER_DEVICE), staging, t.bytes));
    CHECK_OK(class->step_begin(device));
    CHECK_OK(class->launch(device, SL_STREAM_COMPUTE, &backward, &span));
    CHECK_OK(class->launch(device, SL_STREAM_COMPUTE, &forward, &span));
    CHECK_OK(class->step_end(device));
    CHECK_OK(class->read(device, SL_TIER_DEVICE, staging, class->arena(device, SL_TIER_DEVICE), t.bytes));
    test_layout(&t, t.launch.workspace_bytes, staging);
    CHECK_MSG(memcmp(t.launch.in[0].data, t.launch.out[k].data, sl_type_bytes(&t.launch.out[k].type)) == 0,
              "%s: %s %s: makes again other bits than the forward", who, sl_op(s->op)->name, s->op_case->name);
    bool bf16;
    CHECK_MSG(test_error(&t.launch.out[0], &s->want.launch.out[0]) <= tolerance_of(s, 0, &bf16),
              "%s: %s %s: in place it is wrong", who, sl_op(s->op)->name, s->op_case->name);
    check_elements(s, 0, &t.launch.out[0], who);
}

/* False where the device cannot be opened here, which for the CPU is an instruction set that it lacks. */
static bool conform_device(const char *name, int threads)
{
    sl_device_config config = {.threads = threads, .max_commands = 64, .max_events = 8};
    sl_device *device;
    char who[128];
    int64_t unsupported = 0;
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        config.arena_bytes[tier] = ARENA_BYTES;
    if (sl_device_open(name, &config, &device) != SL_OK) {
        printf("%s is not tested: %s\n", name, sl_error_message());
        return false;
    }
    snprintf(who, sizeof who, "%s, %d threads", device->class->numerics(device), threads);
    for (int64_t i = 0; i < n_specimens; i++) {
        specimen *s = &specimens[i];
        if (device->class->supports(device, &s->want.launch) != SL_OK) {
            unsupported++;
            continue;
        }
        run_on_device(device, SL_STREAM_COMPUTE, s, 0, 0xff, 0, who);
        run_on_device(device, SL_STREAM_COMPUTE, s, SHIFT, 0x3c, 0, who);
        if (is_elastic(device, s))
            run_on_device(device, SL_STREAM_COMPUTE, s, 0, 0x3c, 1, who);
        if (sl_op(s->op)->rematerialized_out && s->op_case->optional_out)
            check_rematerialize(device, s, who);
        if (runs_on_host(s->op))
            run_on_device(device, SL_STREAM_HOST, s, 0, 0x3c, 0, who);
    }
    sl_device_close(device);
    printf("%s: %lld cases, %lld unsupported\n", who, (long long) n_specimens, (long long) unsupported);
    return true;
}

static void conform_cpu_isas(void)
{
    for (int isa = 0; isa < SL_ISA_COUNT; isa++) {
        sl_isa found;
        setenv("SLUICE_ISA", sl_isa_name((sl_isa) isa), 1);
        forget_bits();
        if (sl_isa_detect(&found) != SL_OK) {
            printf("cpu %s is not tested: %s\n", sl_isa_name((sl_isa) isa), sl_error_message());
            continue;
        }
        margin = isa == SL_ISA_AMX ? matrix_margin : vector_margin;
        int counts = isa == SL_ISA_SCALAR ? 1 : (int) SL_COUNT(thread_counts); /* references run in one thread anyway */
        for (int k = 0; k < counts; k++)
            CHECK(conform_device("cpu", thread_counts[k]));
    }
    unsetenv("SLUICE_ISA");
}

TEST(devices)
{
    const sl_device_class *classes[SL_DEVICE_CLASSES];
    sl_device_classes(classes);
    for (int64_t i = 0; i < SL_DEVICE_CLASSES; i++) {
        if (!classes[i] || !sl_device_def_at(i)->computes)
            continue;
        forget_bits();
        if (strcmp(classes[i]->name, "cpu") == 0)
            conform_cpu_isas();
        else {
            margin = matrix_margin;
            if (!conform_device(classes[i]->name, 0))
                test_cuda_missing(sl_error_message());
        }
    }
    test_cuda();
}

/* ---- each CPU kernel by itself ---- */

static void run_kernel(const sl_cpu_kernel *kernel, sl_pool *pool, int threads, specimen *s, size_t shift, int dirt)
{
    char who[128];
    test_launch t = {0};
    snprintf(who, sizeof who, "%s, %d threads", kernel->name, threads);
    size_t workspace = kernel->workspace ? kernel->workspace(&s->want.launch, threads) : 0;
    stage(s, staging, workspace, dirt, &t);
    memmove(staging + shift, staging, t.bytes);
    test_layout(&t, workspace, staging + shift);
    kernel->run(&t.launch, pool);
    memmove(staging, staging + shift, t.bytes);
    check_op_case(s, &t, who);
}

static void conform_kernel(const sl_cpu_kernel *kernel)
{
    int64_t supported = 0;
    margin = kernel->isa == SL_ISA_AMX ? matrix_margin : vector_margin;
    forget_bits();
    for (int k = 0; k < (int) SL_COUNT(thread_counts); k++) {
        sl_pool *pool;
        CHECK_OK(sl_pool_create(thread_counts[k], &pool));
        for (int64_t i = 0; i < n_specimens; i++) {
            specimen *s = &specimens[i];
            if (s->op != kernel->op || (kernel->supports && !kernel->supports(&s->want.launch)))
                continue;
            run_kernel(kernel, pool, thread_counts[k], s, 0, 0xff);
            run_kernel(kernel, pool, thread_counts[k], s, SHIFT, 0x3c);
            supported += k == 0;
        }
        sl_pool_destroy(pool);
    }
    CHECK_MSG(supported > 0 || test_filter, "%s: no case of its op runs through it", kernel->name);
}

TEST(cpu_kernels)
{
    sl_isa best;
    int64_t count, skipped = 0;
    const sl_cpu_kernel *const *kernels = sl_cpu_kernels(&count);
    CHECK_OK(sl_isa_detect(&best));
    for (int64_t i = 0; i < count; i++) {
        if (kernels[i]->isa <= best)
            conform_kernel(kernels[i]);
        else
            skipped++;
    }
    printf("%lld kernels, %lld not tested: they need more than this machine's %s\n", (long long) count,
           (long long) skipped, sl_isa_name(best));
}

/* ---- the criterion itself ---- */

/* The element of output k that matters least to the tensor's error and most to its own; -1: none is that small. */
static int64_t find_small(const specimen *s, int k, double tolerance)
{
    const sl_operand *want = &s->want.launch.out[k];
    double largest = 0, best = 0.5;
    int64_t found = -1;
    for (int64_t i = 0; i < sl_type_count(&want->type); i++)
        largest = fmax(largest, fabs((double) sl_get(want, i)));
    for (int64_t i = 0; i < sl_type_count(&want->type); i++) {
        double value = fabs((double) sl_get(want, i)), share = value / (value + (double) s->sensitivity.of[k][i]);
        if (value > 0 && value < 0.9 * tolerance * fmax(largest, 0.01) && share > best)
            best = share, found = i;
    }
    return found;
}

/* Doubling such an element leaves the tensor's error within its tolerance; on its own it is far off, with the wider margin too. */
TEST(small_elements)
{
    int64_t seen = 0;
    for (int64_t j = 0; j < n_specimens; j++)
        for (int k = 0; k < SL_MAX_OUT; k++) {
            specimen *s = &specimens[j];
            sl_operand *want = &s->want.launch.out[k];
            bool bf16;
            double tolerance = tolerance_of(s, k, &bf16);
            int64_t at, small = want->data && tolerance > 0 ? find_small(s, k, tolerance) : -1;
            if (small < 0 || s->op_case->not_finite)
                continue;
            sl_operand got = *want;
            CHECK_OK(sl_alloc(&got.data, sl_type_bytes(&want->type), 1));
            memcpy(got.data, want->data, sl_type_bytes(&want->type));
            sl_put(&got, small, 2 * sl_get(want, small));
            CHECK(test_error(&got, want) <= tolerance);
            CHECK(test_element_error(&got, want, s->sensitivity.of[k], &at) > matrix_margin[bf16] * tolerance);
            CHECK_I64(at, small);
            sl_free(got.data);
            seen++;
        }
    printf("%lld outputs with an element that its tensor's tolerance does not see\n", (long long) seen);
    CHECK(seen > 20 || test_filter);
}

static void print_worst(void)
{
    printf("%-16s %8s  %-30s %-30s\n", "op", "runs", "worst f32, element (allowed)", "worst bf16, element (allowed)");
    for (int op = 0; op < SL_OP_COUNT; op++) {
        const sl_op_def *def = sl_op((sl_op_id) op);
        if (runs[op])
            printf("%-16s %8lld  %.2e, %.2e (%.0e)   %.2e, %.2e (%.0e)\n", def->name, (long long) runs[op],
                   worst[op][0], worst_element[op][0], def->tolerance[0], worst[op][1], worst_element[op][1],
                   def->tolerance[1]);
    }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    unsetenv("SLUICE_ISA"); /* forced one by one below */
    make_specimens();
    test_cases_run = (int) n_specimens; /* the filter is for ops */
    printf("%lld cases\n", (long long) n_specimens);
    test_case_small_elements();
    test_case_devices();
    test_case_cpu_kernels();
    print_worst();
    free_specimens();
    return test_end();
}
