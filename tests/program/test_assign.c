/* Which optimizer updates which parameter: the defaults, rules by name, their errors, and that updates and states of every mixture
 * cover each element of each trained parameter once. */
#include "optim/element.h"
#include "optim/lamb.h"
#include "optim/muon.h"
#include "random_program.h"

static sl_model golden_model(const char *name)
{
    char path[512];
    sl_model model;
    snprintf(path, sizeof path, "%s/tests/golden/%s", SL_SOURCE_DIR, name);
    CHECK_OK(sl_model_find(path, &model));
    return model;
}

static sl_program_config config_with(sl_optimizer optimizer, const char *rules, const char *frozen)
{
    return (sl_program_config){.chunking = {16, 2, 32},
                               .optimizer = optimizer,
                               .optimizer_rules = rules,
                               .frozen = frozen,
                               .weight_decay = 0.1f,
                               .max_segments = 1};
}

static sl_program *program_with(const char *model_name, sl_optimizer optimizer, const char *rules, const char *frozen)
{
    sl_model model = golden_model(model_name);
    sl_program_config config = config_with(optimizer, rules, frozen);
    sl_program *program;
    CHECK_OK(sl_program_create(&config, sl_build_model, &model, &program));
    return program;
}

/* "muon" by the name of a parameter. */
static const char *updater(const sl_program *p, const char *name)
{
    for (int32_t i = 0; i < p->n_params; i++)
        if (strcmp(p->params[i].name, name) == 0)
            return sl_optimizer_of((sl_optimizer) p->optimizer[i])->name;
    return name;
}

typedef struct assigned {
    const char *param, *optimizer;
} assigned;

static void check_assigned(sl_program *p, const assigned *list, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        CHECK_MSG(strcmp(updater(p, list[i].param), list[i].optimizer) == 0, "%s is updated by %s", list[i].param,
                  updater(p, list[i].param));
    sl_program_destroy(p);
}
#define CHECK_ASSIGNED(program, ...) \
    check_assigned(program, (const assigned[]){__VA_ARGS__}, SL_COUNT(((const assigned[]){__VA_ARGS__})))

TEST(muon_takes_the_matrices_of_layers)
{
    CHECK_ASSIGNED(program_with("qwen3", SL_OPTIMIZER_MUON, NULL, NULL), {"embedding", "adamw"}, {"head", "adamw"},
                   {"layers.0.qkv", "muon"}, {"layers.1.o", "muon"}, {"layers.1.gate_up", "muon"},
                   {"layers.0.down", "muon"}, {"layers.0.attention_norm", "adamw"}, {"layers.1.mlp_norm", "adamw"},
                   {"norm", "adamw"});
    CHECK_ASSIGNED(program_with("gpt2", SL_OPTIMIZER_MUON, NULL, NULL), {"embedding", "adamw"}, {"positions", "adamw"},
                   {"layers.0.qkv", "muon"}, {"layers.0.qkv.bias", "adamw"}, {"layers.1.o", "muon"});
    /* a table that the head uses too */
    CHECK_ASSIGNED(program_with("llama-tied", SL_OPTIMIZER_MUON, NULL, NULL), {"embedding", "adamw"},
                   {"layers.0.qkv", "muon"});
    CHECK_ASSIGNED(program_with("qwen3", SL_OPTIMIZER_LAMB, NULL, NULL), {"embedding", "lamb"}, {"norm", "lamb"},
                   {"layers.0.qkv", "lamb"});
}

TEST(the_first_rule_decides)
{
    CHECK_ASSIGNED(program_with("qwen3", SL_OPTIMIZER_ADAMW, "layers.1.*=lamb,layers.?.qkv=muon, *norm=sgd", NULL),
                   {"layers.1.qkv", "lamb"}, {"layers.1.mlp_norm", "lamb"}, {"layers.0.qkv", "muon"},
                   {"layers.0.mlp_norm", "sgd"}, {"norm", "sgd"}, {"layers.0.o", "adamw"}, {"head", "adamw"});
    CHECK_ASSIGNED(program_with("qwen3", SL_OPTIMIZER_ADAMW, "layers.?.qkv=muon,layers.1.*=lamb", NULL),
                   {"layers.1.qkv", "muon"}, {"layers.1.o", "lamb"});
    /* rules for what Muon leaves to others */
    CHECK_ASSIGNED(program_with("qwen3", SL_OPTIMIZER_MUON, "embedding=sgd,layers.0.o=lamb", NULL),
                   {"embedding", "sgd"}, {"head", "adamw"}, {"layers.0.o", "lamb"}, {"layers.1.o", "muon"});
    CHECK_ASSIGNED(program_with("qwen3", SL_OPTIMIZER_SGD, "*.[do]*=lamb", NULL), {"layers.0.down", "lamb"},
                   {"layers.0.qkv", "sgd"});
}

static void check_refused(const char *rules, const char *frozen, const char *part, const char *way_out)
{
    sl_model model = golden_model("qwen3");
    sl_program_config config = config_with(SL_OPTIMIZER_ADAMW, rules, frozen);
    sl_program *program;
    CHECK_FAILS(sl_program_create(&config, sl_build_model, &model, &program), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), part);
    CHECK_CONTAINS(sl_error_message(), way_out);
}

TEST(rules_that_cannot_be_meant)
{
    check_refused("layers.*=adam", NULL, "\"layers.*=adam\" is no rule", "one of adamw, sgd, lamb, muon, adamw8bit");
    check_refused("head=sgd,layers.*", NULL, "\"layers.*\" is no rule", "write PATTERN=OPTIMIZER");
    check_refused("=sgd", NULL, "called \"\"", "* stands for any characters");
    check_refused("head=", NULL, "\"head=\" is no rule", "one of adamw");
    check_refused("head=sgd,layers.7.*=lamb", NULL, "no parameter to give to lamb is called \"layers.7.*\"",
                  "embedding ... head");
    check_refused("layers.0.*=muon", NULL, "\"layers.0.*\" gives layers.0.attention_norm to muon", "narrower pattern");
    check_refused("embedding=muon", NULL, "gives embedding to muon", "a rule for embedding in front");
    check_refused("*=sgd,head=lamb", NULL, "\"head=lamb\" has no effect", "in front of that one or leave it out");
    check_refused("head=lamb", "head", "\"head=lamb\" has no effect", "frozen");
}

/* Frozen parameters have no optimizer's state, whatever rules say of them and others. */
TEST(frozen_parameters)
{
    sl_program *p = program_with("qwen3", SL_OPTIMIZER_MUON, "layers.*=lamb", "layers.0.*,head");
    for (int32_t i = 0; i < p->n_params; i++)
        for (int k = 0; k < SL_MAX_STATES; k++) {
            CHECK_I64(p->state_first[k][i] >= 0, !p->params[i].frozen);
            CHECK_I64(p->state_object[k][p->params[i].group_index] >= 0, !p->params[i].frozen);
        }
    CHECK_I64(p->correction[SL_OPTIMIZER_MUON], -1);
    CHECK(p->correction[SL_OPTIMIZER_LAMB] >= 0 && p->correction[SL_OPTIMIZER_ADAMW] >= 0);
    sl_program_destroy(p);
    p = program_with("qwen3", SL_OPTIMIZER_MUON, NULL, "embedding,head,*norm*"); /* all that AdamW would have */
    CHECK_I64(p->correction[SL_OPTIMIZER_ADAMW], -1);
    for (int32_t g = 0; g < p->n_groups; g++)
        CHECK_I64(p->state_object[1][g], -1);
    sl_program_destroy(p);
}

/* ---- updates and states of mixtures ---- */

/* Elements of a task's operands that it updates, as runs: all of them, or those of its tensors. */
typedef struct parts {
    int n;
    int64_t first[SL_MAX_UPDATE_TENSORS], count[SL_MAX_UPDATE_TENSORS];
    uint64_t stream[SL_MAX_UPDATE_TENSORS]; /* 0: not known here */
} parts;

static parts parts_of(const sl_task *task)
{
    parts all = {.n = 1, .count = {sl_type_count(&task->in[0].type)}};
    if (task->op == SL_OP_ADAMW || task->op == SL_OP_ADAMW8BIT)
        all.stream[0] = sl_adamw_attrs(&task->attrs)->stream + 1;
    else if (task->op == SL_OP_SGD)
        all.stream[0] = sl_sgd_attrs(&task->attrs)->stream + 1;
    else if (task->op == SL_OP_MUON)
        all.stream[0] = sl_muon_attrs(&task->attrs)->stream + 1;
    else if (task->op == SL_OP_LAMB) {
        const struct sl_lamb_attrs *attrs = sl_lamb_attrs(&task->attrs);
        for (all.n = 0; all.n < attrs->tensors; all.n++) {
            all.first[all.n] = sl_lamb_first(attrs, task->in[0].type.dtype, all.n);
            all.count[all.n] = attrs->count[all.n];
            all.stream[all.n] = attrs->stream + (uint64_t) all.n + 1;
        }
    }
    return all;
}

/* The parameter of a group that has an element. */
static int32_t param_at(const sl_program *p, int32_t group, int64_t element)
{
    for (int32_t i = p->groups[group].first_param; i < p->groups[group].first_param + p->groups[group].n_params; i++) {
        const int64_t first = (int64_t) (p->params[i].offset / sl_dtype_bytes(p->params[i].type.dtype));
        if (element >= first && element < first + sl_type_count(&p->params[i].type))
            return i;
    }
    return -1;
}

/* Counts every element that the operand takes, and checks that it is that of the parameter, in a state's own place. */
static void count_operand(const sl_program *p, const sl_task *task, const parts *at, int k, uint8_t **times)
{
    const sl_use *out = &task->out[k];
    const int n_states = sl_op(task->op)->n_out - 2, group = p->objects[out->object].group;
    const bool codes = out->type.dtype == SL_U8; /* 64 elements in 68 bytes */
    const int64_t begin = (int64_t) (codes ? out->offset / 68 * 64 : out->offset / sl_dtype_bytes(out->type.dtype));
    CHECK(!codes || out->offset % 68 == 0);
    const int64_t param_begin = (int64_t) (task->out[0].offset / sl_dtype_bytes(task->out[0].type.dtype));
    for (int i = 0; i < at->n; i++)
        for (int64_t e = at->first[i]; e < at->first[i] + at->count[i]; e++) {
            const int32_t param = param_at(p, group, param_begin + e);
            REQUIRE(param >= 0 && !p->params[param].frozen);
            CHECK_I64(sl_optimizer_of((sl_optimizer) p->optimizer[param])->op, task->op);
            const int64_t first = (int64_t) (p->params[param].offset / sl_dtype_bytes(task->out[0].type.dtype));
            const bool is_state = k >= 1 && k <= n_states;
            CHECK_I64(begin + e,
                      is_state ? p->state_first[k - 1 + 2 * codes][param] + param_begin + e - first : param_begin + e);
            times[out->object][begin + e]++;
        }
}

static void check_coverage(const sl_program *p)
{
    uint8_t **times = calloc((size_t) p->n_objects, sizeof *times);
    uint64_t *streams = calloc((size_t) p->n_tasks * SL_MAX_UPDATE_TENSORS, sizeof *streams);
    int64_t n_streams = 0;
    REQUIRE(times && streams);
    for (int32_t o = 0; o < p->n_objects; o++)
        if (p->objects[o].persistent)
            REQUIRE((times[o] = calloc(p->objects[o].bytes, 1)) != NULL);
    for (int32_t t = 0; t < p->n_tasks; t++) {
        const sl_task *task = &p->tasks[t];
        if (sl_op(task->op)->category != SL_CAT_OPTIMIZER)
            continue;
        const parts at = parts_of(task);
        CHECK(task->host_allowed != (task->op == SL_OP_MUON));
        for (int k = 0; k < sl_op(task->op)->n_out; k++)
            if (task->out[k].object >= 0)
                count_operand(p, task, &at, k, times);
        for (int i = 0; i < at.n; i++)
            streams[n_streams++] = at.stream[i];
    }
    for (int64_t i = 0; i < n_streams; i++)
        for (int64_t j = 0; j < i; j++)
            CHECK(streams[i] == 0 || streams[i] != streams[j]);
    for (int32_t i = 0; i < p->n_params; i++) {
        const sl_param *param = &p->params[i];
        const int64_t first = (int64_t) (param->offset / sl_dtype_bytes(param->type.dtype));
        for (int64_t e = 0; e < sl_type_count(&param->type) && !p->config.forward_only; e++) {
            CHECK_I64(times[p->param_object[param->group_index]][first + e], !param->frozen);
            for (int k = 0; k < SL_STATE_SLOTS; k++)
                if (p->state_first[k][i] >= 0)
                    CHECK_I64(times[p->state_object[k][param->group_index]][p->state_first[k][i] + e], 1);
        }
    }
    for (int32_t o = 0; o < p->n_objects; o++)
        free(times[o]);
    free(times);
    free(streams);
}

TEST(mixtures_cover_every_element_once)
{
    static const char *const rules[] = {NULL,
                                        "*norm*=lamb",
                                        "layers.0.*=sgd",
                                        "*qkv=muon,*=lamb",
                                        "*down=lamb,*gate_up=muon,embedding=sgd",
                                        "*norm*=adamw,*=adamw8bit",
                                        "*o=adamw8bit,*qkv=muon",
                                        "*o=sgd,*norm*=lamb,*qkv=muon"};
    for (int turn = 0; turn < 150; turn++) {
        sl_model model;
        sl_program_config config = random_config();
        sl_program *p;
        CHECK_OK(sl_model_find("byte-test", &model));
        model.layers = pick(1, 2);
        model.kv_heads = pick(1, 2);
        model.heads = model.kv_heads * pick(1, 2);
        model.head_dim = 2 * pick(1, 16);
        model.ffn = pick(1, 40);
        model.dim = pick(1, 40);
        model.vocab = pick(2, 40);
        config.forward_only = false;
        config.optimizer = (sl_optimizer) pick(0, SL_OPTIMIZER_COUNT - 1);
        config.optimizer_rules = rules[pick(0, SL_COUNT(rules) - 1)];
        config.frozen = pick(0, 3) ? NULL : "*mlp_norm";
        CHECK_OK(sl_program_create(&config, sl_build_model, &model, &p));
        check_coverage(p);
        sl_program_destroy(p);
    }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(muon_takes_the_matrices_of_layers);
    RUN(the_first_rule_decides);
    RUN(rules_that_cannot_be_meant);
    RUN(frozen_parameters);
    RUN(mixtures_cover_every_element_once);
    return test_end();
}
