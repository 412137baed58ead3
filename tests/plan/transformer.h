/* A training step of the shape and size of a real Llama, made by hand: the objects, tasks, costs and order that the
 * program builder makes of such a model, on an H200. */
#ifndef SL_TESTS_PLAN_TRANSFORMER_H
#define SL_TESTS_PLAN_TRANSFORMER_H

#include "synthetic.h"

typedef struct transformer {
    int64_t layers, d, f, a, k, heads, vocabulary; /* a, k: width of queries and of keys (= values) */
    int64_t seqlen, chunk_tokens, chunks, chunks_per_round;
} transformer;

static const transformer llama_8b = {32, 4096, 14336, 4096, 1024, 32, 128256, 8192, 16384, 32, 4};
static const transformer llama_32b = {64, 5120, 27648, 5120, 1024, 40, 152064, 8192, 16384, 32, 4};
static const transformer llama_1b_long = {16, 2048, 8192, 2048, 512, 32, 128256, 1048576, 16384, 64, 64};

#define MATMUL_RATE 670e12
#define ATTENTION_RATE 610e12
#define MEMORY_RATE 4.0e12
#define LINK_RATE 50e9

typedef struct transformer_builder {
    synthetic *s;
    const transformer *m;
    int32_t round, first_chunk, block, chunk;
    int32_t *x;                                          /* by block and chunk: its input */
    int32_t *grad, *param, *moment1, *moment2, n_groups; /* two groups per layer, embedding, head */
    uint8_t *grad_written;                               /* by group and part */
    int32_t *saved;                                      /* by layer, chunk and what: the forward's values */
    int32_t *context, *context_grad;                     /* by layer, when sliced */
    int32_t *tokens, positions, step, losses;
    int32_t *dx; /* by chunk */
    int32_t kinds[256];
} transformer_builder;

enum {
    SAVE_N1,
    SAVE_RSTD1,
    SAVE_QKV,
    SAVE_Q,
    SAVE_KV,
    SAVE_O,
    SAVE_LSE,
    SAVE_H,
    SAVE_N2,
    SAVE_RSTD2,
    SAVE_GU,
    SAVE_S,
    SAVES
};

static inline bool sliced(const transformer *m)
{
    return m->seqlen > m->chunk_tokens;
}

static inline int32_t activation(transformer_builder *b, sl_object_class class, int64_t bytes)
{
    int32_t o = synthetic_object(b->s, class, (size_t) bytes);
    sl_object *object = &b->s->program.objects[o];
    object->block = b->block;
    object->chunk = b->chunk;
    object->round = b->round;
    return o;
}

static inline int32_t work(transformer_builder *b, sl_phase phase, double seconds)
{
    int32_t kind = -1;
    synthetic *s = b->s;
    for (int32_t k = 0; k < s->program.n_signatures && kind < 0; k++)
        if (s->costs->device_s[k] == seconds && !s->program.signatures[k].example)
            kind = k;
    if (kind < 0)
        kind = synthetic_kind(s, seconds, INFINITY, 0);
    return synthetic_task(s, kind, phase, b->block, b->chunk, b->round);
}

static inline int32_t gemm(transformer_builder *b, sl_phase phase, int64_t k, int64_t n)
{
    return work(b, phase, 2.0 * (double) b->m->chunk_tokens * (double) k * (double) n / MATMUL_RATE + 3e-6);
}

static inline int32_t pass(transformer_builder *b, sl_phase phase, int64_t columns)
{
    return work(b, phase, (double) b->m->chunk_tokens * (double) columns * 2 / MEMORY_RATE + 3e-6);
}

static inline double attention_s(const transformer_builder *b)
{
    const transformer *m = b->m;
    double n = (double) m->chunk_tokens, context = (double) m->seqlen / 2;
    if (sliced(m))
        context = n * (double) b->chunk + n / 2;
    return 4 * n * context * (double) m->a / ATTENTION_RATE;
}

/* A part of a group: its bytes in the parameters or their gradient. */
static inline sl_use part(const transformer_builder *b, int32_t object, int64_t first, int64_t count)
{
    (void) b;
    return (sl_use){object, (size_t) first * 2, sl_type_1d(SL_BF16, count)};
}

static inline void gradient(transformer_builder *b, int32_t task, int32_t group, int which, int64_t first,
                            int64_t count)
{
    sl_task *t = &b->s->program.tasks[task];
    int i = t->out[0].object < 0 ? 0 : t->out[1].object < 0 ? 1 : 2;
    t->out[i] = part(b, b->grad[group], first, count);
    t->accumulate |= (uint32_t) b->grad_written[group * 8 + which] << i;
    b->grad_written[group * 8 + which] = 1;
}

static inline void weight(transformer_builder *b, int32_t task, int32_t group, int64_t first, int64_t count)
{
    sl_task *t = &b->s->program.tasks[task];
    int i = 0;
    while (t->in[i].object >= 0)
        i++;
    t->in[i] = part(b, b->param[group], first, count);
}

static inline void layer_forward(transformer_builder *b, int32_t layer)
{
    const transformer *m = b->m;
    synthetic *s = b->s;
    int64_t n = m->chunk_tokens, qkv = m->a + 2 * m->k;
    int32_t c = b->chunk, *save = b->saved + ((int64_t) layer * m->chunks + c) * SAVES;
    int32_t x = b->x[(int64_t) layer * m->chunks + c];
    int32_t attention = 2 * layer + 1, mlp = 2 * layer + 2;
    sl_object_class act = SL_CLASS_ACTIVATION;
    int64_t bytes[SAVES] = {n * m->d * 2,     n * 4,        n * qkv * 2,  n * m->a * 2, n * 2 * m->k * 2, n * m->a * 2,
                            n * m->heads * 4, n * m->d * 2, n * m->d * 2, n * 4,        n * 2 * m->f * 2, n * m->f * 2};
    for (int i = 0; i < SAVES; i++)
        save[i] = i == SAVE_KV && sliced(m) ? b->context[layer] : activation(b, act, bytes[i]);
    int32_t t = pass(b, SL_PHASE_FORWARD, 2 * m->d);
    synthetic_in(s, t, x);
    weight(b, t, attention, 0, m->d);
    synthetic_out(s, t, save[SAVE_N1], false);
    synthetic_out(s, t, save[SAVE_RSTD1], false);
    t = gemm(b, SL_PHASE_FORWARD, m->d, qkv);
    synthetic_in(s, t, save[SAVE_N1]);
    weight(b, t, attention, m->d, m->d * qkv);
    synthetic_out(s, t, save[SAVE_QKV], false);
    t = pass(b, SL_PHASE_FORWARD, 2 * qkv);
    synthetic_in(s, t, save[SAVE_QKV]);
    synthetic_in(s, t, b->positions);
    synthetic_out(s, t, save[SAVE_Q], false);
    synthetic_out(s, t, save[SAVE_KV], false);
    if (sliced(m)) {
        s->program.objects[save[SAVE_KV]].producer = -1;
        s->program.tasks[t].out[1] = part(b, save[SAVE_KV], c * n * 2 * m->k, n * 2 * m->k);
    }
    t = work(b, SL_PHASE_FORWARD, attention_s(b));
    synthetic_in(s, t, save[SAVE_Q]);
    synthetic_in(s, t, save[SAVE_KV]);
    if (sliced(m))
        s->program.tasks[t].in[1] = part(b, save[SAVE_KV], 0, (c + 1) * n * 2 * m->k);
    synthetic_out(s, t, save[SAVE_O], false);
    synthetic_out(s, t, save[SAVE_LSE], false);
    t = gemm(b, SL_PHASE_FORWARD, m->a, m->d);
    synthetic_in(s, t, save[SAVE_O]);
    synthetic_in(s, t, x);
    weight(b, t, attention, m->d + m->d * qkv, m->d * m->a);
    synthetic_out(s, t, save[SAVE_H], false);
    t = pass(b, SL_PHASE_FORWARD, 2 * m->d);
    synthetic_in(s, t, save[SAVE_H]);
    weight(b, t, mlp, 0, m->d);
    synthetic_out(s, t, save[SAVE_N2], false);
    synthetic_out(s, t, save[SAVE_RSTD2], false);
    t = gemm(b, SL_PHASE_FORWARD, m->d, 2 * m->f);
    synthetic_in(s, t, save[SAVE_N2]);
    weight(b, t, mlp, m->d, m->d * 2 * m->f);
    synthetic_out(s, t, save[SAVE_GU], false);
    t = pass(b, SL_PHASE_FORWARD, 3 * m->f);
    synthetic_in(s, t, save[SAVE_GU]);
    synthetic_out(s, t, save[SAVE_S], false);
    t = gemm(b, SL_PHASE_FORWARD, m->f, m->d);
    synthetic_in(s, t, save[SAVE_S]);
    synthetic_in(s, t, save[SAVE_H]);
    weight(b, t, mlp, m->d + m->d * 2 * m->f, m->d * m->f);
    b->block++; /* the next block's input belongs to it */
    b->x[(int64_t) (layer + 1) * m->chunks + c] = activation(b, act, n * m->d * 2);
    b->block--;
    synthetic_out(s, t, b->x[(int64_t) (layer + 1) * m->chunks + c], false);
}

static inline void layer_backward(transformer_builder *b, int32_t layer)
{
    const transformer *m = b->m;
    synthetic *s = b->s;
    int64_t n = m->chunk_tokens, qkv = m->a + 2 * m->k;
    int32_t c = b->chunk, *save = b->saved + ((int64_t) layer * m->chunks + c) * SAVES;
    int32_t x = b->x[(int64_t) layer * m->chunks + c], dx = b->dx[c];
    int32_t attention = 2 * layer + 1, mlp = 2 * layer + 2;
    sl_object_class hidden = SL_CLASS_HIDDEN;
    sl_phase back = SL_PHASE_BACKWARD;
    int32_t ds = activation(b, hidden, n * m->f * 2), dgu = activation(b, hidden, n * 2 * m->f * 2);
    int32_t dn = activation(b, hidden, n * m->d * 2), d_o = activation(b, hidden, n * m->a * 2);
    int32_t dq = activation(b, hidden, n * m->a * 2), dqkv = activation(b, hidden, n * qkv * 2);
    int32_t dkv = sliced(m) ? b->context_grad[layer] : activation(b, hidden, n * 2 * m->k * 2);
    int32_t dn1 = activation(b, hidden, n * m->d * 2);
    int32_t t = gemm(b, back, m->d, m->f);
    synthetic_in(s, t, dx);
    weight(b, t, mlp, m->d + m->d * 2 * m->f, m->d * m->f);
    synthetic_out(s, t, ds, false);
    t = gemm(b, back, m->f, m->d);
    synthetic_in(s, t, save[SAVE_S]);
    synthetic_in(s, t, dx);
    gradient(b, t, mlp, 0, m->d + m->d * 2 * m->f, m->d * m->f);
    t = pass(b, back, 5 * m->f);
    synthetic_in(s, t, ds);
    synthetic_in(s, t, save[SAVE_GU]);
    synthetic_out(s, t, dgu, false);
    t = gemm(b, back, 2 * m->f, m->d);
    synthetic_in(s, t, dgu);
    weight(b, t, mlp, m->d, m->d * 2 * m->f);
    synthetic_out(s, t, dn, false);
    t = gemm(b, back, m->d, 2 * m->f);
    synthetic_in(s, t, save[SAVE_N2]);
    synthetic_in(s, t, dgu);
    gradient(b, t, mlp, 1, m->d, m->d * 2 * m->f);
    t = pass(b, back, 4 * m->d);
    synthetic_in(s, t, dn);
    synthetic_in(s, t, save[SAVE_H]);
    synthetic_in(s, t, save[SAVE_RSTD2]);
    weight(b, t, mlp, 0, m->d);
    synthetic_out(s, t, dx, true);
    gradient(b, t, mlp, 2, 0, m->d);
    t = gemm(b, back, m->d, m->a);
    synthetic_in(s, t, dx);
    weight(b, t, attention, m->d + m->d * qkv, m->d * m->a);
    synthetic_out(s, t, d_o, false);
    t = gemm(b, back, m->a, m->d);
    synthetic_in(s, t, save[SAVE_O]);
    synthetic_in(s, t, dx);
    gradient(b, t, attention, 0, m->d + m->d * qkv, m->d * m->a);
    t = work(b, back, 2.5 * attention_s(b));
    synthetic_in(s, t, d_o);
    synthetic_in(s, t, save[SAVE_Q]);
    synthetic_in(s, t, save[SAVE_KV]);
    synthetic_in(s, t, save[SAVE_O]);
    synthetic_in(s, t, save[SAVE_LSE]);
    synthetic_out(s, t, dq, false);
    if (sliced(m)) {
        s->program.tasks[t].in[2] = part(b, save[SAVE_KV], 0, (c + 1) * n * 2 * m->k);
        s->program.tasks[t].out[1] = (sl_use){dkv, 0, sl_type_1d(SL_F32, (c + 1) * n * 2 * m->k)};
        s->program.tasks[t].accumulate |= c + 1 < m->chunks ? 2u : 0;
    } else
        synthetic_out(s, t, dkv, false);
    t = pass(b, back, 2 * qkv);
    synthetic_in(s, t, dq);
    synthetic_in(s, t, dkv);
    if (sliced(m))
        s->program.tasks[t].in[1] = (sl_use){dkv, (size_t) (c * n * 2 * m->k) * 4, sl_type_1d(SL_F32, n * 2 * m->k)};
    synthetic_in(s, t, b->positions);
    synthetic_out(s, t, dqkv, false);
    t = gemm(b, back, qkv, m->d);
    synthetic_in(s, t, dqkv);
    weight(b, t, attention, m->d, m->d * qkv);
    synthetic_out(s, t, dn1, false);
    t = gemm(b, back, m->d, qkv);
    synthetic_in(s, t, save[SAVE_N1]);
    synthetic_in(s, t, dqkv);
    gradient(b, t, attention, 1, m->d, m->d * qkv);
    t = pass(b, back, 4 * m->d);
    synthetic_in(s, t, dn1);
    synthetic_in(s, t, x);
    synthetic_in(s, t, save[SAVE_RSTD1]);
    weight(b, t, attention, 0, m->d);
    synthetic_out(s, t, dx, true);
    gradient(b, t, attention, 2, 0, m->d);
}

static inline void update(transformer_builder *b, int32_t group)
{
    synthetic *s = b->s;
    double count = (double) s->program.objects[b->param[group]].bytes / 2;
    int32_t kind = synthetic_kind(s, count * 14 / MEMORY_RATE, count * 14 / 132e9, 0);
    s->program.signatures[kind].example = 1; /* not to be shared with equal times */
    b->chunk = b->round = -1;
    int32_t t = synthetic_task(s, kind, SL_PHASE_OPTIMIZER, -1, -1, -1);
    s->program.tasks[t].host_allowed = true;
    synthetic_in(s, t, b->grad[group]);
    synthetic_in(s, t, b->step);
    synthetic_out(s, t, b->param[group], true);
    synthetic_out(s, t, b->moment1[group], true);
    synthetic_out(s, t, b->moment2[group], true);
}

static inline void add_groups(transformer_builder *b)
{
    const transformer *m = b->m;
    int64_t attention = m->d + m->d * (m->a + 2 * m->k) + m->d * m->a, mlp = m->d + m->d * 3 * m->f;
    for (int32_t g = 0; g < b->n_groups; g++) {
        int64_t count = g == 0 || g == b->n_groups - 1 ? m->vocabulary * m->d : g % 2 ? attention : mlp;
        int32_t *into[4] = {b->param, b->grad, b->moment1, b->moment2};
        sl_object_class class[4] = {SL_CLASS_PARAMETER, SL_CLASS_GRADIENT, SL_CLASS_OPTIMIZER, SL_CLASS_OPTIMIZER};
        for (int i = 0; i < 4; i++) {
            into[i][g] = activation(b, class[i], count * 2);
            b->s->program.objects[into[i][g]].group = g;
        }
    }
}

static inline void add_head(transformer_builder *b, int32_t kind)
{
    const transformer *m = b->m;
    synthetic *s = b->s;
    b->block = (int32_t) m->layers + 1;
    int32_t t = synthetic_task(s, kind, SL_PHASE_BACKWARD, b->block, b->chunk, b->round);
    b->dx[b->chunk] = activation(b, SL_CLASS_HIDDEN, m->chunk_tokens * m->d * 2);
    synthetic_in(s, t, b->x[m->layers * m->chunks + b->chunk]);
    synthetic_in(s, t, b->param[b->n_groups - 1]);
    synthetic_in(s, t, b->tokens[b->chunk]);
    synthetic_in(s, t, b->step);
    synthetic_out(s, t, b->dx[b->chunk], false);
    gradient(b, t, b->n_groups - 1, 0, 0, m->vocabulary * m->d);
    s->program.tasks[t].out[2] = (sl_use){b->losses, (size_t) b->chunk * 4, sl_type_1d(SL_F32, 1)};
}

static inline void add_round(transformer_builder *b, int32_t head_kind, bool last)
{
    const transformer *m = b->m;
    synthetic *s = b->s;
    int32_t begin = b->first_chunk,
            end = (int32_t) (begin + m->chunks_per_round < m->chunks ? begin + m->chunks_per_round : m->chunks);
    for (int32_t layer = -1; layer < m->layers; layer++)
        for (b->chunk = begin; b->chunk < end; b->chunk++) {
            b->block = layer + 1;
            if (layer >= 0) {
                layer_forward(b, layer);
                continue;
            }
            int32_t t = pass(b, SL_PHASE_FORWARD, 2 * m->d);
            synthetic_in(s, t, b->tokens[b->chunk]);
            synthetic_in(s, t, b->param[0]);
            b->x[b->chunk] = activation(b, SL_CLASS_ACTIVATION, m->chunk_tokens * m->d * 2);
            synthetic_out(s, t, b->x[b->chunk], false);
        }
    for (int32_t layer = (int32_t) m->layers; layer >= -1; layer--) {
        for (int32_t i = begin; i < end; i++) {
            b->chunk = sliced(m) ? end - 1 - (i - begin) : i;
            b->block = layer + 1;
            if (layer == m->layers)
                add_head(b, head_kind);
            else if (layer >= 0)
                layer_backward(b, layer);
            else {
                int32_t t = pass(b, SL_PHASE_BACKWARD, 2 * m->d);
                synthetic_in(s, t, b->dx[b->chunk]);
                synthetic_in(s, t, b->tokens[b->chunk]);
                gradient(b, t, 0, 0, 0, m->vocabulary * m->d);
            }
        }
        if (last && layer >= 0 && layer < m->layers) {
            update(b, 2 * layer + 2);
            update(b, 2 * layer + 1);
        } else if (last)
            update(b, layer < 0 ? 0 : b->n_groups - 1);
    }
}

static inline synthetic *transformer_program(const transformer *m)
{
    int64_t cells = m->layers * m->chunks;
    transformer_builder b = {.m = m, .n_groups = (int32_t) (2 * m->layers + 2)};
    b.s = synthetic_new((int32_t) (cells * 24 + 8 * b.n_groups + 6 * m->chunks + 64),
                        (int32_t) (cells * 24 + 8 * m->chunks + 512), 2048);
    sl_region *region = b.s->program.region;
    synthetic_check(sl_region_alloc(region, &b.x, (m->layers + 1) * m->chunks, 4));
    synthetic_check(sl_region_alloc(region, &b.saved, cells * SAVES, 4));
    synthetic_check(sl_region_alloc(region, &b.grad, b.n_groups * 4, 4));
    b.param = b.grad + b.n_groups;
    b.moment1 = b.param + b.n_groups;
    b.moment2 = b.moment1 + b.n_groups;
    synthetic_check(sl_region_alloc(region, &b.grad_written, b.n_groups * 8, 1));
    synthetic_check(sl_region_alloc(region, &b.context, m->layers * 2, 4));
    b.context_grad = b.context + m->layers;
    synthetic_check(sl_region_alloc(region, &b.tokens, m->chunks * 2, 4));
    b.dx = b.tokens + m->chunks;
    b.block = b.chunk = b.round = -1;
    add_groups(&b);
    b.positions = synthetic_object(b.s, SL_CLASS_DATA, (size_t) m->chunk_tokens * 4);
    b.step = synthetic_object(b.s, SL_CLASS_DATA, 64);
    b.losses = synthetic_object(b.s, SL_CLASS_RESULT, (size_t) m->chunks * 4);
    for (int32_t c = 0; c < m->chunks; c++)
        b.tokens[c] = synthetic_object(b.s, SL_CLASS_DATA, (size_t) m->chunk_tokens * 8);
    for (int32_t l = 0; l < m->layers && sliced(m); l++) {
        b.block = l + 1;
        b.context[l] = activation(&b, SL_CLASS_CONTEXT, m->seqlen * 2 * m->k * 2);
        b.context_grad[l] = activation(&b, SL_CLASS_CONTEXT, m->seqlen * 2 * m->k * 4);
    }
    double head_s = 6.0 * (double) m->chunk_tokens * (double) m->d * (double) m->vocabulary / MATMUL_RATE;
    int32_t head_kind = synthetic_kind(b.s, head_s, INFINITY, (size_t) 1 << 30);
    b.s->program.signatures[head_kind].example = 1;
    int64_t rounds = (m->chunks + m->chunks_per_round - 1) / m->chunks_per_round;
    for (b.round = 0; b.first_chunk < m->chunks; b.first_chunk += (int32_t) m->chunks_per_round) {
        int32_t round = b.round;
        add_round(&b, head_kind, round == rounds - 1);
        b.round = round + 1;
    }
    sl_program *p = &b.s->program;
    p->tokens = m->chunks * m->chunk_tokens;
    p->n_rounds = (int32_t) rounds;
    for (int32_t o = 0; o < p->n_objects; o++)
        p->objects[o].group = p->objects[o].group == -2 ? -1 : p->objects[o].group;
    for (int direction = 0; direction < 2; direction++) {
        b.s->costs->link_bytes_per_s[direction] = LINK_RATE * 1.1;
        b.s->costs->link_bytes_per_s_both[direction] = LINK_RATE;
    }
    b.s->costs->link_latency_s = 5e-6;
    b.s->costs->peak_flops = 989e12;
    return b.s;
}

#endif
