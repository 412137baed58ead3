/* Facts are kept as text: one comparison, one message and one JSON form for all of them. */
#include "train/identity.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "core/log.h"

enum { MAX_FACTS = 50 + SL_OPTIMIZER_COUNT * SL_MAX_OPTIMIZER_OPTIONS };

typedef enum weight {
    MUST_AGREE,          /* the run would be another one */
    MUST_AGREE_IF_KNOWN, /* as well, but checkpoints of earlier versions do not say */
    NONE_IF_UNKNOWN,     /* as well; checkpoints of earlier versions do not say, and have none */
    MOVES_BITS,          /* the run may go on, to other bits than an uninterrupted one */
    STEPS,               /* more of them are usual on resume: told, not warned of */
    BY_STEPS, /* moves bits, but follows from the steps unless given: where those are others, they alone are told */
} weight;

enum { SL_MAX_FACT_NAME = 48 };

typedef struct fact {
    char name[SL_MAX_FACT_NAME];
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
    snprintf(one->name, sizeof one->name, "%s", name);
    one->weight = w;
    va_list arguments;
    va_start(arguments, format);
    sl_format_plain(one->value, sizeof one->value, format, arguments);
    va_end(arguments);
}

/* What differs by layers, and RoPE beyond theta and Llama 3's scaling: checkpoints of earlier versions have none of it. */
static void add_layers(facts *f, const sl_model *m)
{
    const sl_model_rope *r = &m->rope;
    uint64_t hash = sl_hash64(r->short_factors, sizeof r->short_factors, 0);
    hash = sl_hash64(r->long_factors, sizeof r->long_factors, hash);
    if (r->scaling || r->rotary || m->local_rope.theta > 0)
        add(f, "RoPE type", NONE_IF_UNKNOWN, "%" PRId32 " %" PRId32 " %.9g %d %016" PRIx64 ", local %.9g", r->scaling,
            r->rotary, (double) r->magnitude, r->exact_ramp, hash, (double) m->local_rope.theta);
    else
        add(f, "RoPE type", NONE_IF_UNKNOWN, "none");
    hash = 0;
    for (int64_t i = 0; i < m->layers; i++)
        hash |= m->layer_flags[i];
    if (hash)
        add(f, "attention of layers", NONE_IF_UNKNOWN, "window %" PRId64 ", layers %016" PRIx64, m->window,
            sl_hash64(m->layer_flags, (size_t) m->layers, 0));
    else
        add(f, "attention of layers", NONE_IF_UNKNOWN, "none");
    if (m->query_scale > 0 || m->attention_cap > 0 || m->logit_cap > 0)
        add(f, "score scale and caps", NONE_IF_UNKNOWN, "%.9g %.9g %.9g", (double) m->query_scale,
            (double) m->attention_cap, (double) m->logit_cap);
    else
        add(f, "score scale and caps", NONE_IF_UNKNOWN, "none");
    add(f, "biases", NONE_IF_UNKNOWN, "%s%s%s%s", m->qkv_bias ? "qkv " : "", m->o_bias ? "o " : "",
        m->mlp_bias ? "mlp " : "", m->qkv_bias || m->o_bias || m->mlp_bias ? "" : "none");
}

static void add_model(facts *f, const sl_model *m)
{
    char text[32];
    add(f, "model family", MUST_AGREE, "%s", m->family ? m->family->name : "");
    if (m->custom)
        add(f, "model", MUST_AGREE, "%s", m->identity);
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
    add(f, "RoPE theta", MUST_AGREE, "%s", sl_format_f64((double) m->rope.theta, text));
    add(f, "RoPE scaling", MUST_AGREE, "%.9g %.9g %.9g %" PRId32, (double) m->rope.factor, (double) m->rope.low_freq,
        (double) m->rope.high_freq, m->rope.original_context);
    add_layers(f, m);
    add(f, "GELU", MUST_AGREE, "%s", m->gelu_tanh ? "tanh" : "exact");
    add(f, "dropout", MUST_AGREE, "%s", sl_format_f64((double) m->dropout, text));
}

/* The options of the main optimizer have their plain names, those of others say whose they are. */
static void add_options(facts *f, const sl_program_config *p, sl_optimizer optimizer)
{
    const sl_optimizer_def *def = sl_optimizer_of(optimizer);
    for (int i = 0; i < def->n_options; i++) {
        char name[SL_MAX_FACT_NAME];
        snprintf(name, sizeof name, "%s of %s", def->options[i].fact, def->name);
        add(f, optimizer == p->optimizer ? def->options[i].fact : name, MOVES_BITS, "%.9g",
            (double) p->optimizer_options[optimizer][i]);
    }
}

/* Only those in use, so that an option without effect may change; what one side lacks is not compared. Nine digits tell any two
 * floats apart, which is what the kernels get. */
static void add_optimizer(facts *f, const sl_setup *s)
{
    static const char *const schedules[] = {"constant", "cosine", "wsd"};
    const sl_program_config *p = &s->program;
    add(f, "steps", STEPS, "%" PRId64, s->steps);
    add(f, "schedule", MOVES_BITS, "%s", schedules[s->schedule.kind]);
    add(f, "learning rate", MOVES_BITS, "%.9g", s->schedule.peak);
    add(f, "warm-up", BY_STEPS, "%" PRId64, s->schedule.warmup);
    if (s->schedule.kind != SL_SCHEDULE_CONSTANT)
        add(f, "least learning rate", MOVES_BITS, "%.9g", s->schedule.least);
    if (s->schedule.kind == SL_SCHEDULE_WSD)
        add(f, "decay", BY_STEPS, "%" PRId64, s->schedule.decay);
    add(f, "weight decay", MOVES_BITS, "%.9g", (double) p->weight_decay);
    bool used[SL_OPTIMIZER_COUNT];
    sl_program_may_use(p, used);
    for (int k = 0; k < SL_OPTIMIZER_COUNT; k++)
        if (used[k])
            add_options(f, p, (sl_optimizer) k);
    add(f, "clipping", MOVES_BITS, "%.9g", s->clip);
    add(f, "--on-nan", MOVES_BITS, "%s", s->on_nan == SL_ON_NAN_SKIP ? "skip" : "stop");
}

/* A checkpoint has the states that its optimizers keep, and none of frozen parameters. A list that is too long for a fact is compared by
 * its hash. */
static void add_patterns(facts *f, const char *name, const char *patterns)
{
    if (!patterns)
        patterns = "none";
    if (strlen(patterns) < sizeof f->list[0].value)
        add(f, name, NONE_IF_UNKNOWN, "%s", patterns);
    else
        add(f, name, NONE_IF_UNKNOWN, "%016" PRIx64, sl_hash64(patterns, strlen(patterns), 0));
}

static void add_lora(facts *f, const sl_lora *lora, const char *base)
{
    add_patterns(f, "adapted layers", lora->rank ? lora->targets : NULL);
    if (!lora->rank)
        return;
    add(f, "adapter rank", MUST_AGREE, "%" PRId64, lora->rank);
    add(f, "adapter factor", MUST_AGREE, "%.9g", (double) sl_lora_scale(lora));
    add(f, "adapter dropout", MOVES_BITS, "%.9g", (double) lora->dropout);
    if (base && base[0])
        add(f, "model below the adapters", MUST_AGREE, "%s", base);
}

static void list_facts(const sl_identity *identity, facts *f)
{
    const sl_setup *s = identity->setup;
    const sl_chunking *c = &s->program.chunking;
    f->count = 0;
    add_model(f, &s->model);
    add(f, "sequence length", MUST_AGREE, "%" PRId64, c->seqlen);
    add(f, "precision", MUST_AGREE, "%s", sl_precision_name(s->program.precision));
    add(f, "optimizer", MUST_AGREE, "%s", sl_optimizer_of(s->program.optimizer)->name);
    add_patterns(f, "frozen parameters", s->program.frozen);
    add_patterns(f, "optimizer rules", s->program.optimizer_rules);
    add_lora(f, &s->model.lora, identity->base);
    add(f, "seed", MUST_AGREE, "%" PRIu64, s->seed);
    add(f, "data", MUST_AGREE, "%s", identity->data);
    if (identity->sample && identity->sample[0])
        add(f, "data content", MUST_AGREE_IF_KNOWN, "%s", identity->sample);
    add(f, "tokens per step", MOVES_BITS, "%" PRId64, c->seqlen * c->sequences);
    add(f, "chunk tokens", MOVES_BITS, "%" PRId64, c->chunk_tokens);
    add(f, "kernels", MOVES_BITS, "%s", identity->numerics);
    add(f, "order of sums", MOVES_BITS, "%s", s->program.nondeterministic ? "any" : "fixed");
    add_optimizer(f, s);
}

void sl_identity_put(const sl_identity *identity, sl_json_writer *w)
{
    facts f;
    list_facts(identity, &f);
    for (int64_t i = 0; i < f.count; i++)
        sl_json_put_string(w, f.list[i].name, f.list[i].value);
}

/* A constant rate knows the steps by its warm-up alone: once that is over, they make no difference. */
static sl_status tell_steps(const sl_setup *setup, const char *name, const sl_json *then, int64_t done,
                            const char *before)
{
    const char *warmup;
    SL_TRY(sl_json_string_or(name, then, "warm-up", "0", &warmup));
    bool over = done >= setup->schedule.warmup && done >= strtoll(warmup, NULL, 10);
    if (setup->schedule.kind != SL_SCHEDULE_CONSTANT || !over)
        sl_info("the run was begun for %s steps and goes on for %" PRId64
                ": from here on it has the learning rates of those",
                before, setup->steps);
    return SL_OK;
}

sl_status sl_identity_compare(const sl_identity *identity, const char *name, const sl_json *then, int64_t done)
{
    facts f;
    bool other_steps = false;
    list_facts(identity, &f);
    for (int64_t i = 0; i < f.count; i++) {
        const fact *now = &f.list[i];
        const char *before;
        SL_TRY(sl_json_string_or(name, then, now->name, now->weight == NONE_IF_UNKNOWN ? "none" : "", &before));
        if (strcmp(before, now->value) == 0 || (now->weight == BY_STEPS && other_steps))
            continue;
        const bool must = now->weight <= NONE_IF_UNKNOWN;
        if (now->weight != MUST_AGREE && !before[0])
            continue; /* from before this was written down */
        if (now->weight == STEPS) {
            other_steps = true;
            SL_TRY(tell_steps(identity->setup, name, then, done, before));
            continue;
        }
        if (!must) {
            sl_warn("%s was written with other %s (%s, now %s): the run goes on, but not to the same bits", name,
                    now->name, before, now->value);
            continue;
        }
        if (strcmp(now->name, "data content") == 0)
            return sl_fail(SL_E_USAGE,
                           "the data files have changed since %s was written (same names and sizes, other content): "
                           "restore them to go on, or use another --out to begin anew",
                           name);
        if (strcmp(now->name, "data") == 0)
            return sl_fail(
                SL_E_USAGE,
                "%s belongs to a run over other data (%s, now %s: the files' names and sizes, or the callback's "
                "identity; "
                "--mask-documents; what --val-every and --val-share hold out): use the same to go on, or another --out "
                "to begin anew",
                name, before, now->value);
        return sl_fail(SL_E_USAGE,
                       "%s belongs to a run with %s %s, but this one has %s: use the same to go on, or another --out "
                       "to begin anew",
                       name, now->name, before, now->value);
    }
    return SL_OK;
}
