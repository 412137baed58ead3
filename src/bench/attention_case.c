#include "bench/attention_case.h"

#include <math.h>
#include <string.h>

#include "bench/guard.h"
#include "core/pages.h"
#include "core/rng.h"
#include "ops/attention.h"
#include "ops/matmul.h"
#include "ops/softmax.h"

static int64_t items_of(const sl_attention_shape *s)
{
    return s->batch * s->heads;
}

static int64_t elements(const sl_attention_shape *s)
{
    return items_of(s) * s->seqlen * s->dim;
}

/* As ops/fill.c: the sum of four random bytes, near enough to normal. */
static float draw(uint32_t word)
{
    int sum = (int) (word & 255) + (int) (word >> 8 & 255) + (int) (word >> 16 & 255) + (int) (word >> 24);
    return (float) (sum - 510) / 147.8f;
}

sl_status sl_attention_draw(sl_region *region, const sl_attention_shape *s, uint64_t seed, sl_attention_data *data)
{
    float **parts[] = {&data->q, &data->k, &data->v, &data->d_o};
    int64_t n = elements(s);
    for (int p = 0; p < 4; p++) {
        SL_TRY(sl_region_alloc(region, parts[p], n + 3, sizeof(float)));
        for (int64_t i = 0; i < n; i += 4) {
            sl_rng4 words = sl_philox(seed, (uint64_t) i, (uint64_t) p);
            for (int j = 0; j < 4; j++) {
                float stored[1];
                sl_dtype_store(s->dtype, stored, 0, draw(words.v[j]));
                (*parts[p])[i + j] = sl_dtype_load(s->dtype, stored, 0);
            }
        }
    }
    return SL_OK;
}

/* ---- moving values in and out ---- */

/* Rows of the op hold all heads beside each other, `width` values in all; a head's part begins at `first`. */
static int64_t place(const sl_attention_shape *s, int64_t item, int64_t row, int64_t width, int64_t first)
{
    int64_t b = item / s->heads, h = item % s->heads;
    return (b * s->seqlen + row) * width + first + h * s->dim;
}

static void interleave(const sl_attention_shape *s, const float *from, void *to, int64_t width, int64_t first)
{
    for (int64_t item = 0; item < items_of(s); item++)
        for (int64_t row = 0; row < s->seqlen; row++)
            for (int64_t c = 0; c < s->dim; c++)
                sl_dtype_store(s->dtype, to, place(s, item, row, width, first) + c,
                               from[(item * s->seqlen + row) * s->dim + c]);
}

static sl_status write_wide(sl_rig *rig, const sl_attention_shape *s, const sl_operand *to, const float *a,
                            const float *b)
{
    int64_t width = to->type.dim[1];
    void *staging;
    SL_TRY(sl_pages_map(sl_type_bytes(&to->type), &staging));
    interleave(s, a, staging, width, 0);
    if (b)
        interleave(s, b, staging, width, s->heads * s->dim);
    sl_status status = sl_rig_write(rig, to, staging);
    sl_pages_unmap(staging, sl_type_bytes(&to->type));
    return status;
}

sl_status sl_attention_read(sl_rig *rig, const sl_attention_case *c, int what, float *out)
{
    const sl_attention_shape *s = &c->shape;
    bool in_kv = what == SL_ITEM_DK || what == SL_ITEM_DV;
    const sl_operand *whole = what == SL_ITEM_O ? &c->o : what == SL_ITEM_DQ ? &c->dq : &c->dkv;
    size_t bytes = c->naive ? sl_type_bytes(&c->items[what].type) : sl_type_bytes(&whole->type);
    void *staging;
    SL_TRY(sl_pages_map(bytes, &staging));
    sl_status status = c->naive ? SL_OK : sl_rig_read(rig, whole, staging);
    for (int64_t item = 0; item < items_of(s) && status == SL_OK; item++) {
        if (c->naive)
            status = sl_rig_read(rig, &c->items[item * SL_ITEM_OPERANDS + what], staging);
        for (int64_t row = 0; row < s->seqlen; row++)
            for (int64_t d = 0; d < s->dim; d++) {
                int64_t at = c->naive ? row * s->dim + d
                                      : place(s, item, row, whole->type.dim[1],
                                              what == SL_ITEM_DV && in_kv ? s->heads * s->dim : 0) +
                                            d;
                out[(item * s->seqlen + row) * s->dim + d] = sl_dtype_load(s->dtype, staging, at);
            }
    }
    sl_pages_unmap(staging, bytes);
    return status;
}

/* ---- tiled ---- */

static sl_attrs attention_attrs(const sl_attention_shape *s, int64_t offset)
{
    sl_attrs attrs = {.raw = {0}};
    sl_attention_set(&attrs)->heads = sl_attention_set(&attrs)->kv_heads = (int32_t) s->heads;
    sl_attention_set(&attrs)->head_dim = (int32_t) s->dim;
    sl_attention_set(&attrs)->causal = s->causal;
    sl_attention_set(&attrs)->q_offset = offset;
    sl_attention_set(&attrs)->scale = (float) (1 / sqrt((double) s->dim));
    sl_attention_set(&attrs)->sequence = s->seqlen;
    sl_attention_set(&attrs)->uniform = s->seqlen;
    return attrs;
}

static sl_operand rows_of(const sl_operand *x, int64_t first, int64_t rows)
{
    sl_operand part = *x;
    part.data = (unsigned char *) x->data + (size_t) (first * x->type.dim[1]) * sl_dtype_bytes(x->type.dtype);
    part.type.dim[0] = rows;
    return part;
}

/* One workspace serves all launches of a list: they run one after the other. */
static sl_status place_list(sl_rig *rig, sl_launch *list, int64_t count, size_t *workspace_bytes)
{
    size_t most = 0;
    void *workspace = NULL;
    for (int64_t i = 0; i < count; i++) {
        SL_TRY(sl_rig_workspace(rig, &list[i], &list[i].workspace_bytes));
        most = SL_MAX(most, list[i].workspace_bytes);
    }
    if (most)
        SL_TRY(sl_rig_take(rig, most, &workspace));
    for (int64_t i = 0; i < count; i++)
        list[i].workspace = list[i].workspace_bytes ? workspace : NULL;
    *workspace_bytes += SL_ROUND_UP(most, (size_t) SL_ALIGN);
    return SL_OK;
}

static sl_status take_wide(sl_rig *rig, sl_attention_case *c)
{
    const sl_attention_shape *s = &c->shape;
    int64_t rows = s->batch * s->seqlen, width = s->heads * s->dim;
    sl_type q = sl_type_2d(s->dtype, rows, width), kv = sl_type_2d(s->dtype, rows, 2 * width);
    SL_TRY(sl_rig_tensor(rig, q, &c->q));
    SL_TRY(sl_rig_tensor(rig, kv, &c->kv));
    SL_TRY(sl_rig_tensor(rig, q, &c->o));
    SL_TRY(sl_rig_tensor(rig, q, &c->d_o));
    SL_TRY(sl_rig_tensor(rig, q, &c->dq));
    return sl_rig_tensor(rig, kv, &c->dkv);
}

sl_status sl_attention_tiled(sl_rig *rig, sl_region *region, const sl_attention_shape *s, int64_t rows,
                             const sl_attention_data *data, sl_attention_case *c)
{
    int64_t all = s->batch * s->seqlen, each = rows > 0 ? rows : all, n = SL_DIV_UP(all, each);
    size_t before = rig->used;
    sl_operand segments;
    *c = (sl_attention_case){.shape = *s, .n_forward = n, .n_backward = n};
    SL_TRY(sl_region_alloc(region, &c->forward, n, sizeof *c->forward));
    SL_TRY(sl_region_alloc(region, &c->backward, n, sizeof *c->backward));
    SL_TRY(take_wide(rig, c));
    SL_TRY(sl_rig_tensor(rig, sl_type_1d(SL_I32, s->batch + 1), &segments));
    for (int64_t i = 0; i < n; i++) {
        int64_t first = i * each, count = SL_MIN(each, all - first), slice = n - 1 - i;
        /* A slice of a causal sequence is given the rows it sees, as programs do. */
        int64_t visible = n > 1 && s->causal ? first + count : all;
        sl_launch *f = &c->forward[i];
        *f = (sl_launch){.op = SL_OP_ATTENTION, .attrs = attention_attrs(s, n > 1 ? first : 0)};
        if (visible < all)
            sl_attention_set(&f->attrs)->uniform = visible;
        f->in[0] = rows_of(&c->q, first, count);
        f->in[1] = rows_of(&c->kv, 0, visible);
        f->in[2] = segments;
        f->out[0] = rows_of(&c->o, first, count);
        SL_TRY(sl_rig_tensor(rig, sl_type_2d(SL_F32, s->heads, count), &f->out[1]));
        /* Slices go back in reverse; the first of them writes dkv, the others add to it. */
        sl_launch *b = &c->backward[slice];
        *b = (sl_launch){.op = SL_OP_ATTENTION_BWD, .attrs = f->attrs, .accumulate = slice > 0 ? 2 : 0};
        sl_attention_set(&b->attrs)->nondeterministic = rig->nondeterministic;
        b->in[0] = rows_of(&c->d_o, first, count);
        b->in[1] = f->in[0];
        b->in[2] = f->in[1];
        b->in[3] = f->out[0];
        b->in[4] = f->out[1];
        b->in[5] = segments;
        b->out[0] = rows_of(&c->dq, first, count);
        b->out[1] = rows_of(&c->dkv, 0, visible);
    }
    SL_TRY(place_list(rig, c->forward, n, &c->workspace_bytes));
    SL_TRY(place_list(rig, c->backward, n, &c->workspace_bytes));
    c->bytes = rig->used - before;
    int32_t *bounds;
    SL_TRY(sl_region_alloc(region, &bounds, s->batch + 1, sizeof *bounds));
    for (int64_t b = 0; b <= s->batch; b++)
        bounds[b] = (int32_t) (b * s->seqlen);
    SL_TRY(sl_rig_write(rig, &segments, bounds));
    SL_TRY(write_wide(rig, s, &c->q, data->q, NULL));
    SL_TRY(write_wide(rig, s, &c->kv, data->k, data->v));
    return write_wide(rig, s, &c->d_o, data->d_o, NULL);
}

/* ---- naive ---- */

static sl_launch gemm(const sl_operand *a, const sl_operand *b, const sl_operand *c, int ta, int tb)
{
    sl_launch launch = {.op = SL_OP_MATMUL};
    sl_matmul_set(&launch.attrs)->trans_a = ta;
    sl_matmul_set(&launch.attrs)->trans_b = tb;
    launch.in[0] = *a;
    launch.in[1] = *b;
    launch.out[0] = *c;
    return launch;
}

static sl_launch softmax(const sl_attention_shape *s, sl_op_id op, const sl_operand *a, const sl_operand *b,
                         const sl_operand *out)
{
    sl_launch launch = {.op = op};
    sl_softmax_set(&launch.attrs)->scale = (float) (1 / sqrt((double) s->dim));
    sl_softmax_set(&launch.attrs)->causal = s->causal;
    launch.in[0] = *a;
    if (b)
        launch.in[1] = *b;
    launch.out[0] = *out;
    return launch;
}

/* S = Q K^T, P = softmax(S), O = P V;  dP = dO V^T, dV = P^T dO, dS = softmax'(P, dP), dQ = dS K, dK = dS^T Q. The
 * square matrices of all items exist at once, as in a batched implementation; dP takes the place of S. */
static sl_status naive_item(sl_rig *rig, sl_attention_case *c, int64_t item)
{
    const sl_attention_shape *s = &c->shape;
    sl_operand *x = &c->items[item * SL_ITEM_OPERANDS], scores, p, ds;
    sl_type square = sl_type_2d(s->dtype, s->seqlen, s->seqlen), tall = sl_type_2d(s->dtype, s->seqlen, s->dim);
    for (int i = 0; i < SL_ITEM_OPERANDS; i++)
        SL_TRY(sl_rig_tensor(rig, tall, &x[i]));
    SL_TRY(sl_rig_tensor(rig, square, &scores));
    SL_TRY(sl_rig_tensor(rig, square, &p));
    SL_TRY(sl_rig_tensor(rig, square, &ds));
    sl_launch *f = &c->forward[3 * item], *b = &c->backward[5 * item];
    f[0] = gemm(&x[SL_ITEM_Q], &x[SL_ITEM_K], &scores, 0, 1);
    f[1] = softmax(s, SL_OP_SOFTMAX, &scores, NULL, &p);
    f[2] = gemm(&p, &x[SL_ITEM_V], &x[SL_ITEM_O], 0, 0);
    b[0] = gemm(&x[SL_ITEM_DO], &x[SL_ITEM_V], &scores, 0, 1);
    b[1] = gemm(&p, &x[SL_ITEM_DO], &x[SL_ITEM_DV], 1, 0);
    b[2] = softmax(s, SL_OP_SOFTMAX_BWD, &scores, &p, &ds);
    b[3] = gemm(&ds, &x[SL_ITEM_K], &x[SL_ITEM_DQ], 0, 0);
    b[4] = gemm(&ds, &x[SL_ITEM_Q], &x[SL_ITEM_DK], 1, 0);
    return SL_OK;
}

static sl_status write_items(sl_rig *rig, sl_attention_case *c, const sl_attention_data *data)
{
    static const int which[] = {SL_ITEM_Q, SL_ITEM_K, SL_ITEM_V, SL_ITEM_DO};
    const float *from[] = {data->q, data->k, data->v, data->d_o};
    const sl_attention_shape *s = &c->shape;
    int64_t count = s->seqlen * s->dim;
    void *staging;
    SL_TRY(sl_pages_map((size_t) count * sizeof(float), &staging));
    sl_status status = SL_OK;
    for (int64_t item = 0; item < items_of(s) && status == SL_OK; item++)
        for (int i = 0; i < 4 && status == SL_OK; i++) {
            for (int64_t j = 0; j < count; j++)
                sl_dtype_store(s->dtype, staging, j, from[i][item * count + j]);
            status = sl_rig_write(rig, &c->items[item * SL_ITEM_OPERANDS + which[i]], staging);
        }
    sl_pages_unmap(staging, (size_t) count * sizeof(float));
    return status;
}

sl_status sl_attention_naive(sl_rig *rig, sl_region *region, const sl_attention_shape *s, const sl_attention_data *data,
                             sl_attention_case *c)
{
    int64_t items = items_of(s);
    size_t before = rig->used;
    *c = (sl_attention_case){.shape = *s, .naive = true, .n_forward = 3 * items, .n_backward = 5 * items};
    SL_TRY(sl_region_alloc(region, &c->forward, c->n_forward, sizeof *c->forward));
    SL_TRY(sl_region_alloc(region, &c->backward, c->n_backward, sizeof *c->backward));
    SL_TRY(sl_region_alloc(region, &c->items, items * SL_ITEM_OPERANDS, sizeof *c->items));
    for (int64_t i = 0; i < items; i++)
        SL_TRY(naive_item(rig, c, i));
    SL_TRY(place_list(rig, c->forward, c->n_forward, &c->workspace_bytes));
    SL_TRY(place_list(rig, c->backward, c->n_backward, &c->workspace_bytes));
    c->bytes = rig->used - before;
    return write_items(rig, c, data);
}

/* ---- accounting ---- */

double sl_attention_account(const sl_attention_shape *s, bool naive, bool backward)
{
    double items = (double) items_of(s), t = (double) s->seqlen, d = (double) s->dim,
           e = (double) sl_dtype_bytes(s->dtype);
    double rows = items * t * d * e * (backward ? 8 : 4); /* q, k, v, o and, going back, their gradients */
    if (naive)
        return rows + items * t * t * e * (backward ? 3 : 2);
    return rows + items * t * 4; /* the logarithm of each row's sum */
}

double sl_attention_flops(const sl_attention_shape *s, bool backward)
{
    double forward = 4 * (double) items_of(s) * (double) s->seqlen * (double) s->seqlen * (double) s->dim;
    return (backward ? 2.5 : 1) * forward * (s->causal ? 0.5 : 1);
}

/* ---- exact rows ---- */

static double dot(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double) a[i] * (double) b[i];
    return sum;
}

void sl_attention_exact(const sl_attention_shape *s, const sl_attention_data *data, int64_t item, int64_t row,
                        double *p, double *o, double *dq)
{
    int64_t d = s->dim, base = item * s->seqlen * d, end = s->causal ? row + 1 : s->seqlen;
    const float *q = data->q + base + row * d, *k = data->k + base, *v = data->v + base,
                *d_o = data->d_o + base + row * d;
    double scale = 1 / sqrt((double) d), largest = -INFINITY, sum = 0, delta = 0;
    for (int64_t j = 0; j < end; j++) {
        p[j] = scale * dot(q, k + j * d, d);
        largest = fmax(largest, p[j]);
    }
    for (int64_t j = 0; j < end; j++) {
        p[j] = exp(p[j] - largest);
        sum += p[j];
    }
    memset(o, 0, (size_t) d * sizeof *o);
    memset(dq, 0, (size_t) d * sizeof *dq);
    for (int64_t j = 0; j < end; j++) {
        p[j] /= sum;
        for (int64_t c = 0; c < d; c++)
            o[c] += p[j] * (double) v[j * d + c];
    }
    for (int64_t c = 0; c < d; c++)
        delta += o[c] * (double) d_o[c];
    for (int64_t j = 0; j < end; j++) {
        double ds = p[j] * (dot(d_o, v + j * d, d) - delta) * scale;
        for (int64_t c = 0; c < d; c++)
            dq[c] += ds * (double) k[j * d + c];
    }
}

static double row_error(const float *got, const double *want, int64_t n)
{
    double largest = 0, error = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(got[i]))
            return INFINITY;
        largest = fmax(largest, fabs(want[i]));
        error = fmax(error, fabs((double) got[i] - want[i]));
    }
    return largest > 0 ? error / largest : error;
}

/* One row of o or dq: a large result need not be read as a whole. */
static sl_status read_row(sl_rig *rig, const sl_attention_case *c, int what, int64_t item, int64_t row, void *staging,
                          float *out)
{
    const sl_attention_shape *s = &c->shape;
    sl_operand from = c->naive ? c->items[item * SL_ITEM_OPERANDS + what] : what == SL_ITEM_O ? c->o : c->dq;
    int64_t first = c->naive ? row * s->dim : place(s, item, row, from.type.dim[1], 0);
    from.data = (unsigned char *) from.data + (size_t) first * sl_dtype_bytes(s->dtype);
    from.type = sl_type_1d(s->dtype, s->dim);
    SL_TRY(sl_rig_read(rig, &from, staging));
    for (int64_t i = 0; i < s->dim; i++)
        out[i] = sl_dtype_load(s->dtype, staging, i);
    return SL_OK;
}

sl_status sl_attention_check(sl_rig *rig, const sl_attention_case *c, const sl_attention_data *data, double *error)
{
    enum { ROWS = 6 };
    const sl_attention_shape *s = &c->shape;
    int64_t items = items_of(s);
    float *got, *staging;
    double *p, *want;
    sl_region *region;
    SL_TRY(sl_region_create(&region));
    sl_status status = sl_region_alloc(region, &got, 2 * s->dim, sizeof *got);
    if (status == SL_OK)
        status = sl_region_alloc(region, &p, s->seqlen, sizeof *p);
    if (status == SL_OK)
        status = sl_region_alloc(region, &want, 2 * s->dim, sizeof *want);
    staging = status == SL_OK ? got + s->dim : NULL;
    *error = 0;
    for (int i = 0; i < ROWS && status == SL_OK; i++) { /* the last row of all among them */
        int64_t item = (items - 1) * i / (ROWS - 1), row = (s->seqlen - 1) * (i + 1) / ROWS;
        sl_attention_exact(s, data, item, row, p, want, want + s->dim);
        for (int k = 0; k < 2 && status == SL_OK; k++) {
            status = read_row(rig, c, k ? SL_ITEM_DQ : SL_ITEM_O, item, row, staging, got);
            if (status == SL_OK)
                *error = fmax(*error, row_error(got, want + k * s->dim, s->dim));
        }
    }
    sl_region_destroy(region);
    return status;
}
