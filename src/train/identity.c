/* Facts are kept as text: one comparison, one message and one JSON form for all of them. */
#include "train/identity.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/log.h"

enum { MAX_FACTS = 40 };

typedef enum weight {
    MUST_AGREE, /* the run would be another one */
    MOVES_BITS  /* the run may go on, to other bits than an uninterrupted one */
} weight;

typedef struct fact {
    const char *name;
    weight weight;
    char value[128];
} fact;

typedef struct facts {
    fact list[MAX_FACTS];
    int64_t count;
} facts;

static void add(facts *f, const char *name, weight w, const char *format, ...) __attribute__((format(printf, 4, 5)));
static void add(facts *f, const char *name, weight w, const char *format, ...)
{
    SL_ASSERT(f->count < MAX_FACTS);
    fact *one = &f->list[f->count++];
    one->name = name;
    one->weight = w;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(one->value, sizeof one->value, format, arguments);
    va_end(arguments);
}

static void add_model(facts *f, const sl_model *m)
{
    char text[32];
    add(f, "model family", MUST_AGREE, "%s", m->family ? m->family->name : "");
    add(f, "model layers", MUST_AGREE, "%" PRId64, m->layers);
    add(f, "model dimension", MUST_AGREE, "%" PRId64, m->dim);
    add(f, "model heads", MUST_AGREE, "%" PRId64, m->heads);
    add(f, "model K/V heads", MUST_AGREE, "%" PRId64, m->kv_heads);
    add(f, "model head dimension", MUST_AGREE, "%" PRId64, m->head_dim);
    add(f, "model FFN dimension", MUST_AGREE, "%" PRId64, m->ffn);
    add(f, "model vocabulary", MUST_AGREE, "%" PRId64, m->vocab);
    add(f, "model positions", MUST_AGREE, "%" PRId64, m->max_seqlen);
    add(f, "tied embeddings", MUST_AGREE, "%s", m->tied ? "yes" : "no");
    add(f, "norm epsilon", MUST_AGREE, "%s", sl_format_f64((double) m->norm_eps, text));
    add(f, "RoPE style", MUST_AGREE, "%" PRId32, m->rope_style);
    add(f, "RoPE theta", MUST_AGREE, "%s", sl_format_f64((double) m->rope_theta, text));
    add(f, "RoPE scaling", MUST_AGREE, "%g %g %g %" PRId32, (double) m->rope_factor, (double) m->rope_low_freq,
        (double) m->rope_high_freq, m->rope_original_context);
    add(f, "GELU", MUST_AGREE, "%s", m->gelu_tanh ? "tanh" : "exact");
    add(f, "dropout", MUST_AGREE, "%s", sl_format_f64((double) m->dropout, text));
}

static void list_facts(const sl_identity *identity, facts *f)
{
    static const char *const precisions[] = {"f32", "bf16", "bf16-master"};
    const sl_setup *s = identity->setup;
    const sl_chunking *c = &s->program.chunking;
    f->count = 0;
    add_model(f, &s->model);
    add(f, "sequence length", MUST_AGREE, "%" PRId64, c->seqlen);
    add(f, "precision", MUST_AGREE, "%s", precisions[s->program.precision]);
    add(f, "optimizer", MUST_AGREE, "%s", s->program.optimizer == SL_OPTIMIZER_SGD ? "sgd" : "adamw");
    add(f, "seed", MUST_AGREE, "%" PRIu64, s->seed);
    add(f, "data", MUST_AGREE, "%016" PRIx64, identity->data);
    add(f, "tokens per step", MOVES_BITS, "%" PRId64, c->seqlen * c->sequences);
    add(f, "chunk tokens", MOVES_BITS, "%" PRId64, c->chunk_tokens);
    add(f, "kernels", MOVES_BITS, "%s", identity->numerics);
    add(f, "order of sums", MOVES_BITS, "%s", s->program.any_order ? "any" : "fixed");
}

void sl_identity_put(const sl_identity *identity, sl_json_writer *w)
{
    facts f;
    list_facts(identity, &f);
    for (int64_t i = 0; i < f.count; i++)
        sl_json_put_string(w, f.list[i].name, f.list[i].value);
}

sl_status sl_identity_compare(const sl_identity *identity, const char *name, const sl_json *then)
{
    facts f;
    list_facts(identity, &f);
    for (int64_t i = 0; i < f.count; i++) {
        const fact *now = &f.list[i];
        const char *before;
        SL_TRY(sl_json_string_or(name, then, now->name, "", &before));
        if (strcmp(before, now->value) == 0)
            continue;
        if (now->weight == MOVES_BITS) {
            sl_warn("%s was written with other %s (%s, now %s): the run goes on, but not to the same bits", name,
                    now->name, before, now->value);
            continue;
        }
        if (strcmp(now->name, "data") == 0)
            return sl_fail(
                SL_E_USAGE,
                "%s belongs to a run over other data (the files' names and sizes, --mask-documents, or what "
                "--val-every and --val-share hold out): use the same to go on, or another --out to begin anew",
                name);
        return sl_fail(SL_E_USAGE,
                       "%s belongs to a run with %s %s, but this one has %s: use the same to go on, or another --out "
                       "to begin anew",
                       name, now->name, before, now->value);
    }
    return SL_OK;
}
