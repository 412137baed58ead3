/* Shape rules: every case is accepted, everything that does not fit is refused with a message that names the op. */
#include "ops/attention.h"
#include "ops/drop_path.h"
#include "ops/dropout.h"
#include "ops/embedding.h"
#include "ops/grn.h"
#include "ops/launch.h"
#include "ops/mean_rows.h"
#include "ops/norm.h"
#include "ops/qk_norm.h"
#include "ops/rope.h"
#include "ops/rope_table.h"
#include "ops/slice.h"
#include "ops/unary.h"
#include "ops/window.h"
#include "optim/element.h"

static sl_status infer(sl_op_id op, const void *case_attrs, const sl_type *in)
{
    sl_type out[SL_MAX_OUT] = {{0}};
    const sl_attrs attrs = sl_op_attrs(op, case_attrs);
    return sl_op(op)->infer(&attrs, in, out);
}

static void check_refused(sl_op_id op, const sl_op_case *changed, const char *what, int operand)
{
    const sl_op_def *def = sl_op(op);
    sl_status status = infer(op, changed->attrs, changed->in);
    CHECK_MSG(status == SL_E_INTERNAL, "%s accepts operand %d with %s", def->name, operand, what);
    CHECK_CONTAINS(sl_error_message(), def->name);
}

TEST(table)
{
    for (int op = 0; op < SL_OP_COUNT; op++) {
        const sl_op_def *def = sl_op((sl_op_id) op);
        REQUIRE(def && def->name && def->infer && def->work && def->reference && def->n_cases > 0);
        CHECK(def->n_in <= SL_MAX_IN && def->n_out <= SL_MAX_OUT);
        CHECK((def->can_accumulate & def->updates) == 0);
        CHECK(def->attrs_bytes <= sizeof(sl_attrs));
        CHECK(def->segments >= 0 && def->segments < def->n_in);
        CHECK(!def->shorten || def->linear);
        CHECK((def->context_in >> def->n_in) == 0 && ((def->context_out | def->makes_context) >> def->n_out) == 0);
        for (int64_t c = 0; c < def->n_cases; c++)
            CHECK_MSG((def->cases[c].accumulate & ~def->can_accumulate) == 0, "%s %s accumulates what cannot",
                      def->name, def->cases[c].name);
    }
    CHECK_STR(sl_dtype_name(SL_BF16), "bf16");
}

/* Every role has one op. */
TEST(roles)
{
    int count[SL_ROLE_COUNT] = {0};
    for (int op = 0; op < SL_OP_COUNT; op++)
        count[sl_op((sl_op_id) op)->role]++;
    for (int role = SL_ROLE_NONE + 1; role < SL_ROLE_COUNT; role++) {
        CHECK_I64(count[role], 1);
        CHECK(sl_op(sl_op_of_role((sl_op_role) role))->role == (sl_op_role) role);
    }
}

TEST(cases_are_accepted)
{
    for (int op = 0; op < SL_OP_COUNT; op++)
        for (int64_t c = 0; c < sl_op((sl_op_id) op)->n_cases; c++) {
            sl_launch launch;
            CHECK_OK(sl_op_case_launch((sl_op_id) op, &sl_op((sl_op_id) op)->cases[c], &launch));
        }
}

/* Each operand of each op in turn: missing, of another dtype, of another rank. */
TEST(wrong_operands)
{
    for (int op = 0; op < SL_OP_COUNT; op++) {
        const sl_op_def *def = sl_op((sl_op_id) op);
        for (int i = 0; i < def->n_in; i++) {
            sl_op_case changed = def->cases[0];
            if (!changed.in[i].rank)
                continue;
            changed.in[i].rank = 0;
            if (!(def->optional_in >> i & 1u))
                check_refused((sl_op_id) op, &changed, "nothing there", i);
            changed = def->cases[0];
            changed.in[i].dtype = changed.in[i].dtype == SL_I32 ? SL_F32 : SL_I32;
            check_refused((sl_op_id) op, &changed, "another dtype", i);
            changed = def->cases[0];
            changed.in[i].dim[0] = 0;
            check_refused((sl_op_id) op, &changed, "no rows", i);
        }
    }
}

/* op, operand, dimension: one more there does not fit the other operands of the op's first case. */
static const struct {
    sl_op_id op;
    int operand, dim;
} misfits[] = {
    {SL_OP_EMBEDDING_BWD, 1, 0},
    {SL_OP_RMSNORM, 1, 0},
    {SL_OP_RMSNORM_BWD, 1, 0},
    {SL_OP_RMSNORM_BWD, 1, 1},
    {SL_OP_RMSNORM_BWD, 2, 0},
    {SL_OP_RMSNORM_BWD, 3, 0},
    {SL_OP_LAYERNORM, 1, 0},
    {SL_OP_LAYERNORM, 2, 0},
    {SL_OP_LAYERNORM_BWD, 1, 1},
    {SL_OP_LAYERNORM_BWD, 2, 0},
    {SL_OP_LAYERNORM_BWD, 3, 0},
    {SL_OP_LAYERNORM_BWD, 4, 0},
    {SL_OP_MATMUL, 0, 1},
    {SL_OP_MATMUL, 1, 0},
    {SL_OP_ROPE, 0, 1},
    {SL_OP_ROPE, 1, 0},
    {SL_OP_ROPE_BWD, 0, 1},
    {SL_OP_ROPE_BWD, 1, 1},
    {SL_OP_ROPE_BWD, 2, 0},
    {SL_OP_ATTENTION, 0, 0},
    {SL_OP_ATTENTION, 0, 1},
    {SL_OP_ATTENTION, 1, 1},
    {SL_OP_ATTENTION_BWD, 0, 0},
    {SL_OP_ATTENTION_BWD, 2, 1},
    {SL_OP_ATTENTION_BWD, 3, 0},
    {SL_OP_ATTENTION_BWD, 4, 0},
    {SL_OP_ATTENTION_BWD, 4, 1},
    {SL_OP_SWIGLU, 0, 1},
    {SL_OP_SWIGLU_BWD, 0, 1},
    {SL_OP_SWIGLU_BWD, 1, 0},
    {SL_OP_GELU_BWD, 1, 1},
    {SL_OP_ADD, 1, 0},
    {SL_OP_DROPOUT, 1, 0},
    {SL_OP_HEAD_LOSS, 0, 1},
    {SL_OP_HEAD_LOSS, 2, 0},
    {SL_OP_HEAD_LOSS_BWD, 1, 1},
    {SL_OP_HEAD_LOSS_BWD, 3, 0},
    {SL_OP_GRAD_GATE, 1, 0},
    {SL_OP_ADAMW, 1, 0},
    {SL_OP_SGD, 1, 0},
    {SL_OP_MUL, 1, 0},
    {SL_OP_CONCAT, 1, 0},
    {SL_OP_SLICE_BWD, 0, 0},
    {SL_OP_SOFT_LOSS, 1, 0},
    {SL_OP_SOFT_LOSS, 1, 1},
    {SL_OP_SOFT_LOSS_BWD, 1, 1},
    {SL_OP_SOFT_LOSS_BWD, 2, 0},
    {SL_OP_SCALE_COLUMNS, 1, 0},
    {SL_OP_SCALE_COLUMNS_BWD, 1, 0},
    {SL_OP_SCALE_COLUMNS_BWD, 2, 0},
    {SL_OP_DROP_PATH, 1, 0},
    {SL_OP_UNARY_BWD, 1, 1},
    {SL_OP_L2_NORM_BWD, 1, 1},
    {SL_OP_L2_NORM_BWD, 2, 0},
    {SL_OP_ROPE_TABLE, 0, 0},
    {SL_OP_ROPE_TABLE, 0, 1},
    {SL_OP_ROPE_TABLE, 1, 1},
    {SL_OP_ROPE_TABLE_BWD, 1, 0},
    {SL_OP_ROPE_TABLE_BWD, 1, 1},
    {SL_OP_ROPE_TABLE_BWD, 2, 1},
    {SL_OP_MEAN_ROWS, 0, 0},
    {SL_OP_POOL, 0, 0},
    {SL_OP_POOL_BWD, 0, 0},
    {SL_OP_POOL_BWD, 1, 1},
    {SL_OP_UNFOLD, 0, 0},
    {SL_OP_FOLD, 0, 0},
    {SL_OP_FOLD, 0, 1},
    {SL_OP_DEPTHWISE, 0, 0},
    {SL_OP_DEPTHWISE, 1, 0},
    {SL_OP_DEPTHWISE_BWD, 1, 0},
    {SL_OP_DEPTHWISE_BWD, 2, 1},
    {SL_OP_GRN, 0, 0},
    {SL_OP_GRN, 2, 0},
    {SL_OP_GRN_BWD, 1, 0},
    {SL_OP_GRN_BWD, 3, 0},
};

TEST(misfitting_shapes)
{
    for (int64_t i = 0; i < SL_COUNT(misfits); i++) {
        sl_op_case changed = sl_op(misfits[i].op)->cases[0];
        changed.in[misfits[i].operand].dim[misfits[i].dim]++;
        check_refused(misfits[i].op, &changed, "a misfitting dimension", misfits[i].operand);
    }
}

TEST(misfitting_options)
{
    const sl_op_case *nt = NULL, *residual = NULL;
    for (int64_t c = 0; c < sl_op(SL_OP_MATMUL)->n_cases; c++) {
        const sl_op_case *op_case = &sl_op(SL_OP_MATMUL)->cases[c];
        nt = !nt && op_case->in[2].rank ? op_case : nt;
        residual = !residual && op_case->in[3].rank ? op_case : residual;
    }
    REQUIRE(nt && residual);
    sl_op_case changed = *nt;
    changed.in[2].dim[0]++;
    check_refused(SL_OP_MATMUL, &changed, "a long bias", 2);
    changed = *residual;
    changed.in[3].dim[0]++;
    check_refused(SL_OP_MATMUL, &changed, "a tall residual", 3);
    changed = sl_op(SL_OP_ADAMW)->cases[1];
    changed.in[2].dim[0] = 3;
    check_refused(SL_OP_ADAMW, &changed, "a short gate", 2);
}

/* A case with other attributes, which are kept in `attrs`. */
static sl_op_case with_attrs(sl_op_id op, int64_t index, sl_attrs *attrs)
{
    sl_op_case changed = sl_op(op)->cases[index];
    *attrs = sl_op_attrs(op, changed.attrs);
    changed.attrs = attrs;
    return changed;
}

TEST(wrong_attributes)
{
    sl_attrs attrs;
    sl_op_case changed = with_attrs(SL_OP_ATTENTION, 3, &attrs); /* 6 heads over 2 */
    sl_attention_set(&attrs)->kv_heads = 4;
    check_refused(SL_OP_ATTENTION, &changed, "heads that do not share", -1);
    changed = with_attrs(SL_OP_LAYERNORM, 0, &attrs);
    sl_norm_set(&attrs)->offset = 1;
    check_refused(SL_OP_LAYERNORM, &changed, "an offset of its weights", -1);
    changed = with_attrs(SL_OP_QK_NORM, 0, &attrs);
    sl_qk_norm_set(&attrs)->whole = 1;
    check_refused(SL_OP_QK_NORM, &changed, "weights of one head for all", -1);
    changed = with_attrs(SL_OP_ATTENTION, 0, &attrs);
    sl_attention_set(&attrs)->q_offset = 1;
    check_refused(SL_OP_ATTENTION, &changed, "queries past the context", -1);
    changed = with_attrs(SL_OP_ATTENTION, 0, &attrs);
    sl_attention_set(&attrs)->q_offset = -1;
    check_refused(SL_OP_ATTENTION, &changed, "a negative offset", -1);
    changed = with_attrs(SL_OP_ROPE, 2, &attrs); /* odd head, no rotation */
    sl_rope_set(&attrs)->style = SL_ROPE_HALF;
    sl_rope_set(&attrs)->theta = 10000;
    check_refused(SL_OP_ROPE, &changed, "an odd head to rotate", -1);
    changed = with_attrs(SL_OP_ROPE, 0, &attrs);
    sl_rope_set(&attrs)->rotary = sl_rope_set(&attrs)->head_dim + 2;
    check_refused(SL_OP_ROPE, &changed, "more to rotate than the head has", -1);
    changed = with_attrs(SL_OP_ROPE, 0, &attrs);
    sl_rope_set(&attrs)->factor = 8;
    check_refused(SL_OP_ROPE, &changed, "scaling without its factors", -1);
    changed = with_attrs(SL_OP_DROPOUT, 0, &attrs);
    sl_dropout_set(&attrs)->probability = 1;
    check_refused(SL_OP_DROPOUT, &changed, "probability one", -1);
    changed = with_attrs(SL_OP_EMBEDDING_BWD, 0, &attrs);
    sl_embedding_set(&attrs)->rows = 0;
    check_refused(SL_OP_EMBEDDING_BWD, &changed, "no vocabulary", -1);
    changed = with_attrs(SL_OP_SLICE, 0, &attrs);
    sl_slice_set(&attrs)->first_column++;
    check_refused(SL_OP_SLICE, &changed, "columns past the end", -1);
    changed = with_attrs(SL_OP_SLICE, 0, &attrs);
    sl_slice_set(&attrs)->first_row = -1;
    check_refused(SL_OP_SLICE, &changed, "a negative row", -1);
    changed = with_attrs(SL_OP_DROP_PATH, 0, &attrs);
    sl_drop_path_set(&attrs)->sample_rows = 0;
    check_refused(SL_OP_DROP_PATH, &changed, "samples without rows", -1);
    changed = with_attrs(SL_OP_UNARY, 0, &attrs);
    sl_unary_set(&attrs)->function = SL_UNARY_COUNT;
    check_refused(SL_OP_UNARY, &changed, "an unknown function", -1);
    changed = with_attrs(SL_OP_L2_NORM, 0, &attrs);
    sl_norm_set(&attrs)->eps = 0;
    check_refused(SL_OP_L2_NORM, &changed, "rows that may have no length", -1);
    changed = with_attrs(SL_OP_ROPE_TABLE, 0, &attrs);
    sl_rope_table_set(&attrs)->block = 6;
    check_refused(SL_OP_ROPE_TABLE, &changed, "blocks that do not fill a head", -1);
    changed = with_attrs(SL_OP_MEAN_ROWS, 0, &attrs);
    sl_mean_rows_set(&attrs)->first = 1;
    check_refused(SL_OP_MEAN_ROWS, &changed, "rows past the sample's end", -1);
    changed = with_attrs(SL_OP_POOL, 0, &attrs);
    sl_window_set(&attrs)->mode = SL_POOL_MODES;
    check_refused(SL_OP_POOL, &changed, "an unknown mode", -1);
    changed = with_attrs(SL_OP_POOL, 0, &attrs);
    sl_window_set(&attrs)->pad_h = 2;
    check_refused(SL_OP_POOL, &changed, "windows of padding alone", -1);
    changed = with_attrs(SL_OP_UNFOLD, 0, &attrs);
    sl_window_set(&attrs)->kernel_w = 9;
    check_refused(SL_OP_UNFOLD, &changed, "a kernel wider than the image", -1);
    changed = with_attrs(SL_OP_GRN, 0, &attrs);
    sl_grn_set(&attrs)->eps = 0;
    check_refused(SL_OP_GRN, &changed, "a mean length that may be 0", -1);
    changed = with_attrs(SL_OP_ADAMW, 0, &attrs);
    sl_adamw_set(&attrs)->decayed = 1001;
    check_refused(SL_OP_ADAMW, &changed, "more decayed than there are", -1);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(table);
    RUN(roles);
    RUN(cases_are_accepted);
    RUN(wrong_operands);
    RUN(misfitting_shapes);
    RUN(misfitting_options);
    RUN(wrong_attributes);
    return test_end();
}
