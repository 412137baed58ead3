/* What passes over the graph change: sums of biases on the way, values recomputed in place, ops joined. */
#include "build.h"
#include "ops/attention.h"
#include "ops/rope.h"

/* ---- biases: summed by the launch that wrote the gradient last, or by a pass of their own ---- */

static void finish(sl_graph *graph, sl_value x)
{
    CHECK_OK(sl_graph_begin_block(graph, "head"));
    CHECK_OK(sl_graph_finish(graph, loss_of(graph, x, param(graph, "head", "head", 9, 8, true))));
}

/* Counts the nodes that make the gradient of `bias`, by themselves or on the way, and destroys the graph. */
static void count_sums(sl_graph *graph, sl_value bias, int32_t *alone, int32_t *on_the_way)
{
    *alone = *on_the_way = 0;
    for (int32_t i = 0; i < graph->n_nodes; i++)
        for (int k = 0; k < graph->nodes[i].n_out; k++) {
            sl_value out = graph->nodes[i].out[k];
            if (out == SL_NO_VALUE || graph->values[out].gradient_of != bias)
                continue;
            CHECK_I64(graph->values[out].class, SL_VALUE_PARAMETER_GRADIENT);
            CHECK_I64(graph->values[out].type.dim[0], 8);
            if (graph->nodes[i].op == SL_OP_BIAS_GRAD)
                ++*alone;
            else
                ++*on_the_way;
        }
    sl_graph_destroy(graph);
}

/* Begins a block with a weight and a bias; its input. */
static sl_value biased_layer(sl_graph *graph, sl_value *w, sl_value *bias)
{
    sl_value x = embedded(graph, 8);
    CHECK_OK(sl_graph_begin_block(graph, "layer"));
    *w = param(graph, "layer", "w", 8, 8, true);
    *bias = param(graph, "layer", "b", 8, 0, false);
    return x;
}

TEST(biases_are_summed_on_the_way)
{
    int32_t alone, on_the_way;
    sl_graph *graph = new_graph(SL_F32, true);
    sl_value w, bias, x = biased_layer(graph, &w, &bias);
    x = biased(graph, "up", x, w, bias, SL_NO_VALUE);
    x = op(graph, SL_OP_GELU, "gelu", NULL, &x, 1);
    finish(graph, x);
    count_sums(graph, bias, &alone, &on_the_way);
    CHECK_I64(alone, 0);
    CHECK_I64(on_the_way, 1);
}

/* The gradient is complete only behind the last launch that adds to it: gelu in one order, a matrix multiply in the other. */
TEST(biases_are_summed_last)
{
    for (int gelu_last = 0; gelu_last < 2; gelu_last++) { /* of the backward: first of the forward */
        int32_t alone, on_the_way;
        sl_graph *graph = new_graph(SL_F32, true);
        sl_value w, bias, part[2], x = biased_layer(graph, &w, &bias);
        sl_value other = param(graph, "layer", "other", 8, 8, true);
        x = biased(graph, "up", x, w, bias, SL_NO_VALUE);
        for (int i = 0; i < 2; i++)
            part[i] = i == gelu_last ? linear(graph, "other", x, other, SL_NO_VALUE)
                                     : op(graph, SL_OP_GELU, "gelu", NULL, &x, 1);
        x = op(graph, SL_OP_ADD, "both", NULL, part, 2);
        finish(graph, x);
        count_sums(graph, bias, &alone, &on_the_way);
        CHECK_I64(alone, !gelu_last);
        CHECK_I64(on_the_way, gelu_last);
    }
}

/* x + norm(x) W^T + b: the norm's backward adds to the gradient that b's is the sum of. The same bias again: it adds there too. */
TEST(biases_are_summed_before)
{
    int32_t alone, on_the_way;
    for (int uses = 1; uses <= 2; uses++) {
        sl_graph *graph = new_graph(SL_F32, true);
        sl_value w, bias, x = biased_layer(graph, &w, &bias);
        sl_value scale = param(graph, "layer", "scale", 8, 0, false),
                 shift = param(graph, "layer", "shift", 8, 0, false);
        for (int i = 0; i < uses; i++) {
            sl_value h = op(graph, SL_OP_LAYERNORM, "norm", NULL, (const sl_value[]){x, scale, shift}, 3);
            x = biased(graph, "project", h, w, bias, x);
        }
        finish(graph, x);
        int32_t norms = 0;
        for (int32_t i = 0; i < graph->n_nodes; i++)
            if (graph->nodes[i].op == SL_OP_LAYERNORM_BWD) {
                CHECK_I64(graph->nodes[i].accumulate, norms ? 15 : 1); /* the second adds to every gradient */
                norms++;
            }
        count_sums(graph, bias, &alone, &on_the_way);
        CHECK_I64(alone, 0);
        CHECK_I64(on_the_way, uses);
    }
}

/* Across blocks, and for a bias that has a gradient already, there is a pass of its own. */
TEST(biases_are_summed_alone)
{
    int32_t alone, on_the_way;
    sl_graph *graph = new_graph(SL_F32, true);
    sl_value w, bias, x = biased_layer(graph, &w, &bias);
    x = biased(graph, "up", x, w, bias, SL_NO_VALUE);
    CHECK_OK(sl_graph_begin_block(graph, "next"));
    x = op(graph, SL_OP_GELU, "gelu", NULL, &x, 1);
    finish(graph, x);
    count_sums(graph, bias, &alone, &on_the_way);
    CHECK_I64(alone, 1);
    CHECK_I64(on_the_way, 0);

    graph = new_graph(SL_F32, true);
    x = biased_layer(graph, &w, &bias);
    for (int i = 0; i < 2; i++) {
        x = biased(graph, "up", x, w, bias, SL_NO_VALUE);
        x = op(graph, SL_OP_GELU, "gelu", NULL, &x, 1);
    }
    finish(graph, x);
    count_sums(graph, bias, &alone, &on_the_way);
    CHECK_I64(alone, 1); /* the first one's: it adds to the other's, which was written before */
    CHECK_I64(on_the_way, 1);
}

/* down(swiglu(x)): the gradient of down's weights comes behind swiglu's backward and reads what that makes, which lies where swiglu's
 * gradient was, also where that is a sum; but not where nobody would read it, nor where what else it reads, or what it writes, is added to meanwhile. */
TEST(rematerialize_in_place)
{
    enum { ALONE, SUM, UNREAD, ADDED_TO, TWICE, WAYS };
    for (int way = 0; way < WAYS; way++) {
        sl_graph *graph, *plain;
        sl_graph_config config = {.tokens = 4, .max_segments = 2, .training = true};
        CHECK_OK(sl_graph_create(&config, &plain));
        sl_value x = embedded(plain, 16);
        CHECK_OK(sl_graph_begin_block(plain, "layer"));
        sl_value w = param(plain, "layer", "w", 8, 8, true), v = param(plain, "layer", "v", 8, 8, true);
        sl_value other = linear(plain, "other", x, param(plain, "layer", "other", 8, 16, true), SL_NO_VALUE);
        sl_value s = op(plain, SL_OP_SWIGLU, "swiglu", NULL, &x, 1), y = s;
        sl_value late = way == ADDED_TO ? op(plain, SL_OP_GELU, "gelu", NULL, &other, 1) : SL_NO_VALUE;
        if (way == TWICE) /* the same weights: their gradient is written with s, then added to */
            other = linear(plain, "before", other, w, SL_NO_VALUE);
        if (way != UNREAD)
            y = linear(plain, "down", s, w, way == ADDED_TO || way == TWICE ? other : SL_NO_VALUE);
        if (way == SUM) {
            s = op(plain, SL_OP_ADD, "both", NULL, (const sl_value[]){s, other}, 2);
            y = op(plain, SL_OP_ADD, "sum", NULL, (const sl_value[]){s, y}, 2);
        }
        if (way == ADDED_TO) /* gelu's backward adds to what y's gradient has become: other's */
            y = linear(plain, "last", late, v, y);
        CHECK_OK(sl_graph_begin_block(plain, "head"));
        CHECK_OK(sl_graph_finish(plain, loss_of(plain, y, param(plain, "head", "head", 9, 8, true))));
        CHECK_OK(sl_graph_rematerialize(plain, &graph));
        CHECK_I64(graph->n_nodes, plain->n_nodes);
        int32_t backward = -1;
        for (int32_t i = 0; i < graph->n_nodes; i++)
            if (graph->nodes[i].op == SL_OP_SWIGLU_BWD)
                backward = i;
        REQUIRE(backward >= 0);
        const sl_node *node = &graph->nodes[backward], *next = node + 1;
        if (way == UNREAD || way == ADDED_TO || way == TWICE) {
            CHECK(node->out[1] == SL_NO_VALUE);
        } else {
            REQUIRE(node->out[1] != SL_NO_VALUE);
            CHECK(graph->values[node->out[1]].storage == graph->values[node->in[0]].storage);
            CHECK(next->op == SL_OP_MATMUL && next->in[1] == node->out[1]);
            CHECK(graph->values[next->out[0]].class == SL_VALUE_PARAMETER_GRADIENT);
        }
        sl_graph_destroy(graph);
        sl_graph_destroy(plain);
    }
}

/* ---- fusion ---- */

static const sl_node *node_called(const sl_graph *graph, const char *name)
{
    for (int32_t i = 0; i < graph->n_nodes; i++)
        if (strcmp(graph->nodes[i].name, name) == 0)
            return &graph->nodes[i];
    return NULL;
}

typedef enum addition { ALONE, READ_TWICE, OTHER_BLOCK, LATER, TAKEN } addition;

/* y = x + linear(x): an operand of the multiply, unless something is in the way. */
static void check_addition(addition how, bool fused)
{
    sl_graph *graph = new_graph(SL_F32, true);
    sl_value x = embedded(graph, 8);
    CHECK_OK(sl_graph_begin_block(graph, "middle"));
    sl_value w = param(graph, "middle", "w", 8, 8, true), other = x;
    sl_value h = linear(graph, "linear", x, w, how == TAKEN ? x : SL_NO_VALUE);
    if (how == LATER)
        other = op(graph, SL_OP_GELU, "later", NULL, &x, 1);
    if (how == OTHER_BLOCK)
        CHECK_OK(sl_graph_begin_block(graph, "next"));
    sl_value y = op(graph, SL_OP_ADD, "sum", NULL, (const sl_value[]){other, h}, 2);
    if (how == READ_TWICE)
        y = op(graph, SL_OP_MUL, "twice", NULL, (const sl_value[]){y, h}, 2);
    CHECK_OK(sl_graph_begin_block(graph, "head"));
    CHECK_OK(sl_graph_finish(graph, loss_of(graph, y, param(graph, "head", "head", 9, 8, true))));
    const sl_node *multiply = node_called(graph, "linear");
    CHECK((node_called(graph, "sum") == NULL) == fused);
    CHECK_I64(multiply->in[3], fused || how == TAKEN ? x : SL_NO_VALUE);
    if (fused) { /* whoever read the sum reads the multiply's result */
        CHECK_I64(node_called(graph, "loss")->in[0], multiply->out[0]);
        CHECK_I64(graph->blocks[1].n_forward, 1);
    }
    sl_graph_destroy(graph);
}

TEST(additions_join_the_multiply)
{
    check_addition(ALONE, true);
    check_addition(READ_TWICE, false);
    check_addition(OTHER_BLOCK, false);
    check_addition(LATER, false);
    check_addition(TAKEN, false);
}

/* A multiply that adds the result of another one: the addition joins that, unless something else reads what it made. */
TEST(additions_join_the_multiply_before)
{
    for (int read_twice = 0; read_twice < 2; read_twice++) {
        sl_graph *graph = new_graph(SL_F32, true);
        sl_value x = embedded(graph, 8);
        CHECK_OK(sl_graph_begin_block(graph, "layer"));
        sl_value w = param(graph, "layer", "w", 8, 8, true), v = param(graph, "layer", "v", 8, 8, true);
        sl_value low = linear(graph, "low", x, v, SL_NO_VALUE), h = linear(graph, "linear", x, w, low);
        sl_value y = op(graph, SL_OP_ADD, "sum", NULL, (const sl_value[]){x, h}, 2);
        if (read_twice)
            y = op(graph, SL_OP_MUL, "twice", NULL, (const sl_value[]){y, low}, 2);
        CHECK_OK(sl_graph_begin_block(graph, "head"));
        CHECK_OK(sl_graph_finish(graph, loss_of(graph, y, param(graph, "head", "head", 9, 8, true))));
        CHECK((node_called(graph, "sum") != NULL) == read_twice);
        CHECK_I64(node_called(graph, "linear")->in[3], low);
        CHECK_I64(node_called(graph, "low")->in[3], read_twice ? SL_NO_VALUE : x);
        sl_graph_destroy(graph);
    }
}

/* Attention takes q, k and v as they lie where nothing is rotated and no slice needs the context. */
static void check_split(sl_rope_style style, bool sliced, bool joined)
{
    sl_graph *graph;
    sl_graph_config config = {.tokens = 4, .max_segments = 2, .dtype = SL_F32, .training = true, .sliced = sliced};
    CHECK_OK(sl_graph_create(&config, &graph));
    sl_value qkv = embedded(graph, 24), positions, segments, parts[SL_MAX_OUT];
    sl_attrs rope = {.raw = {0}}, attention = {.raw = {0}};
    *sl_rope_set(&rope) =
        (struct sl_rope_attrs){.heads = 2, .kv_heads = 2, .head_dim = 4, .style = (int32_t) style, .theta = 10000};
    *sl_attention_set(&attention) =
        (struct sl_attention_attrs){.heads = 2, .kv_heads = 2, .head_dim = 4, .causal = 1, .scale = 0.5f};
    CHECK_OK(sl_graph_input(graph, SL_INPUT_POSITIONS, &positions));
    CHECK_OK(sl_graph_input(graph, SL_INPUT_SEGMENTS, &segments));
    CHECK_OK(sl_graph_op(graph, SL_OP_ROPE, "split", &rope, (const sl_value[]){qkv, positions}, 2, parts));
    sl_value y =
        op(graph, SL_OP_ATTENTION, "attention", &attention, (const sl_value[]){parts[0], parts[1], segments}, 3);
    CHECK_OK(sl_graph_begin_block(graph, "head"));
    CHECK_OK(sl_graph_finish(graph, loss_of(graph, y, param(graph, "head", "head", 9, 8, true))));
    CHECK((node_called(graph, "split") == NULL) == joined);
    CHECK_I64(node_called(graph, "attention")->in[0], joined ? qkv : parts[0]);
    CHECK_I64(node_called(graph, "attention")->in[1], joined ? SL_NO_VALUE : parts[1]);
    CHECK_I64(count_ops(graph, SL_OP_ROPE_BWD), joined ? 0 : 1);
    sl_graph_destroy(graph);
}

TEST(splits_are_left_out)
{
    check_split(SL_ROPE_NONE, false, true);
    check_split(SL_ROPE_NONE, true, false);
    check_split(SL_ROPE_HALF, false, false);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(biases_are_summed_on_the_way);
    RUN(biases_are_summed_last);
    RUN(biases_are_summed_before);
    RUN(biases_are_summed_alone);
    RUN(rematerialize_in_place);
    RUN(additions_join_the_multiply);
    RUN(additions_join_the_multiply_before);
    RUN(splits_are_left_out);
    return test_end();
}
