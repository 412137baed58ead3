/* The graph by itself: group layout, sums of gradients, passing through residual additions, the order of blocks. */
#include <math.h>

#include "graph/graph.h"
#include "ops/attention.h"
#include "ops/head_loss.h"
#include "ops/matmul.h"
#include "ops/norm.h"
#include "ops/reshape.h"
#include "ops/rope.h"
#include "ops/slice.h"
#include "test.h"

static sl_graph *new_graph(sl_dtype dtype, bool training)
{
    sl_graph *graph;
    sl_graph_config config = {.tokens = 4, .max_segments = 2, .dtype = dtype, .training = training};
    CHECK_OK(sl_graph_create(&config, &graph));
    return graph;
}

static sl_value param(sl_graph *graph, const char *group, const char *name, int64_t rows, int64_t columns, bool decay)
{
    sl_param p = {.name = name, .group = group, .decay = decay, .init = SL_INIT_NORMAL, .init_std = 1};
    sl_value value;
    p.type = columns ? sl_type_2d(SL_F32, rows, columns) : sl_type_1d(SL_F32, rows);
    CHECK_OK(sl_graph_param(graph, &p, &value));
    return value;
}

static sl_value op(sl_graph *graph, sl_op_id id, const char *name, const sl_attrs *attrs, const sl_value *in, int n_in)
{
    sl_value out[SL_MAX_OUT];
    CHECK_OK(sl_graph_op(graph, id, name, attrs, in, n_in, out));
    return out[0];
}

static sl_value biased(sl_graph *graph, const char *name, sl_value x, sl_value w, sl_value bias, sl_value residual)
{
    sl_attrs attrs = {.raw = {0}};
    sl_matmul_set(&attrs)->trans_b = 1;
    return op(graph, SL_OP_MATMUL, name, &attrs, (const sl_value[]){x, w, bias, residual}, 4);
}

static sl_value linear(sl_graph *graph, const char *name, sl_value x, sl_value w, sl_value residual)
{
    return biased(graph, name, x, w, SL_NO_VALUE, residual);
}

static sl_value embedded(sl_graph *graph, int64_t dim)
{
    sl_value tokens;
    CHECK_OK(sl_graph_begin_block(graph, "embedding"));
    CHECK_OK(sl_graph_input(graph, SL_INPUT_TOKENS, &tokens));
    sl_value table = param(graph, "embedding", "table", 9, dim, true);
    return op(graph, SL_OP_EMBEDDING, "embedding", NULL, (const sl_value[]){table, tokens}, 2);
}

static sl_value loss_of(sl_graph *graph, sl_value x, sl_value w)
{
    sl_value targets;
    sl_attrs attrs = {.raw = {0}};
    sl_head_set(&attrs)->ignore = -100;
    CHECK_OK(sl_graph_input(graph, SL_INPUT_TARGETS, &targets));
    return op(graph, SL_OP_HEAD_LOSS, "loss", &attrs, (const sl_value[]){x, w, targets}, 3);
}

static int32_t count_ops(const sl_graph *graph, sl_op_id id)
{
    int32_t count = 0;
    for (int32_t i = 0; i < graph->n_nodes; i++)
        count += graph->nodes[i].op == id;
    return count;
}

TEST(groups_are_laid_out)
{
    sl_graph *graph = new_graph(SL_BF16, false);
    CHECK_OK(sl_graph_begin_block(graph, "all"));
    param(graph, "g", "norm", 5, 0, false);
    param(graph, "g", "weight", 3, 50, true);
    param(graph, "g", "bias", 200, 0, false);
    param(graph, "g", "other", 2, 64, true);
    sl_value x = embedded(graph, 8);
    CHECK_OK(sl_graph_finish(graph, loss_of(graph, x, param(graph, "head", "head", 9, 8, true))));
    const sl_param *p = graph->params;
    CHECK_I64(p[1].offset, 0);   /* decayed first, in order of declaration */
    CHECK_I64(p[3].offset, 512); /* 150 elements of 2 bytes, up to 256 */
    CHECK_I64(p[0].offset, 768);
    CHECK_I64(p[2].offset, 1024);
    CHECK_I64(graph->groups[0].decayed, 384);
    CHECK_I64(graph->groups[0].count, 512 + 256);
    CHECK_I64(graph->groups[0].n_params, 4);
    sl_graph_destroy(graph);
}

TEST(groups_must_be_whole)
{
    sl_graph *graph = new_graph(SL_F32, false);
    sl_value value;
    sl_param again = {.name = "c", .group = "g", .type = sl_type_1d(SL_F32, 4)};
    CHECK_OK(sl_graph_begin_block(graph, "all"));
    param(graph, "g", "a", 4, 0, false);
    param(graph, "h", "b", 4, 0, false);
    CHECK_FAILS(sl_graph_param(graph, &again, &value), SL_E_INTERNAL);
    sl_graph_destroy(graph);
}

/* y = x + f(x), twice, in two blocks: the residual stream's gradient stays in one storage from the loss to the embedding. */
TEST(residuals_share_storage)
{
    sl_graph *graph = new_graph(SL_F32, true);
    sl_value x = embedded(graph, 8);
    for (int layer = 0; layer < 2; layer++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", layer);
        CHECK_OK(sl_graph_begin_block(graph, name));
        sl_value w = param(graph, name, name, 8, 8, true);
        sl_value h = op(graph, SL_OP_GELU, "gelu", NULL, &x, 1);
        x = linear(graph, "linear", h, w, x);
    }
    CHECK_OK(sl_graph_begin_block(graph, "head"));
    CHECK_OK(sl_graph_finish(graph, loss_of(graph, x, param(graph, "head", "head", 9, 8, true))));
    CHECK_I64(count_ops(graph, SL_OP_ADD), 0);
    CHECK_I64(count_ops(graph, SL_OP_HEAD_LOSS), 0);
    sl_value stream = SL_NO_VALUE;
    for (int32_t i = 0; i < graph->n_nodes; i++) {
        const sl_node *node = &graph->nodes[i];
        if (node->op == SL_OP_HEAD_LOSS_BWD)
            stream = graph->values[node->out[1]].storage;
        if (node->op == SL_OP_GELU_BWD) {
            CHECK_I64(node->accumulate, 1);
            CHECK_I64(graph->values[node->out[0]].storage, stream);
        }
        if (node->op == SL_OP_EMBEDDING_BWD)
            CHECK_I64(graph->values[node->in[0]].storage, stream);
    }
    sl_graph_destroy(graph);
}

/* z = x + y, y = gelu(x): both gradients begin as z's, so the one for x must not be summed into bytes that gelu still reads. */
TEST(shared_bytes_are_not_added_to)
{
    sl_graph *graph = new_graph(SL_F32, true);
    sl_value x = embedded(graph, 8);
    CHECK_OK(sl_graph_begin_block(graph, "head"));
    sl_value y = op(graph, SL_OP_GELU, "gelu", NULL, &x, 1);
    sl_value z = op(graph, SL_OP_ADD, "add", NULL, (const sl_value[]){x, y}, 2);
    CHECK_OK(sl_graph_finish(graph, loss_of(graph, z, param(graph, "head", "head", 9, 8, true))));
    CHECK_I64(count_ops(graph, SL_OP_ADD), 2); /* the model's, and the sum of the two gradients */
    for (int32_t i = 0; i < graph->n_nodes; i++)
        if (graph->nodes[i].op == SL_OP_GELU_BWD) {
            CHECK_I64(graph->nodes[i].accumulate, 0);
            CHECK(graph->values[graph->nodes[i].out[0]].storage != graph->values[graph->nodes[i].in[0]].storage);
        }
    sl_graph_destroy(graph);
}

TEST(twice_the_same)
{
    sl_graph *graph = new_graph(SL_F32, true);
    sl_value x = embedded(graph, 8);
    CHECK_OK(sl_graph_begin_block(graph, "head"));
    sl_value z = op(graph, SL_OP_ADD, "double", NULL, (const sl_value[]){x, x}, 2);
    CHECK_OK(sl_graph_finish(graph, loss_of(graph, z, param(graph, "head", "head", 9, 8, true))));
    CHECK_I64(count_ops(graph, SL_OP_ADD), 2);
    sl_graph_destroy(graph);
}

/* A parameter used twice in a block has one gradient that is added to; used in two blocks, two. */
TEST(parameter_gradients)
{
    sl_graph *graph = new_graph(SL_F32, true);
    sl_value x = embedded(graph, 8);
    CHECK_OK(sl_graph_begin_block(graph, "layer"));
    sl_value w = param(graph, "layer", "w", 8, 8, true);
    x = linear(graph, "one", x, w, SL_NO_VALUE);
    x = linear(graph, "two", x, w, SL_NO_VALUE);
    CHECK_OK(sl_graph_begin_block(graph, "head"));
    x = linear(graph, "three", x, param(graph, "layer", "w", 8, 8, true), SL_NO_VALUE); /* asked for again: the same */
    CHECK_OK(sl_graph_finish(graph, loss_of(graph, x, param(graph, "head", "head", 9, 8, true))));
    int32_t gradients = 0, adding = 0;
    for (int32_t v = 0; v < graph->n_values; v++)
        gradients += graph->values[v].class == SL_VALUE_PARAMETER_GRADIENT && graph->values[v].gradient_of == w;
    for (int32_t i = 0; i < graph->n_nodes; i++)
        adding += graph->nodes[i].accumulate != 0;
    CHECK_I64(graph->n_params, 3);
    CHECK_I64(gradients, 2);
    CHECK_I64(adding, 1);
    sl_graph_destroy(graph);
}

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

/* Blocks' backward ranges lie one after the other, last block first; the head's forward has moved into its backward. */
TEST(blocks)
{
    sl_graph *graph = new_graph(SL_F32, true);
    sl_value x = embedded(graph, 8);
    CHECK_OK(sl_graph_begin_block(graph, "layer"));
    x = linear(graph, "linear", x, param(graph, "layer", "w", 8, 8, true), x);
    CHECK_OK(sl_graph_begin_block(graph, "head"));
    x = op(graph, SL_OP_GELU, "gelu", NULL, &x, 1);
    CHECK_OK(sl_graph_finish(graph, loss_of(graph, x, param(graph, "head", "head", 9, 8, true))));
    const sl_block *b = graph->blocks;
    CHECK_I64(b[0].n_forward, 1);
    CHECK_I64(b[1].n_forward, 1);
    CHECK_I64(b[2].n_forward, 0);
    CHECK_I64(b[2].first_backward, 2);
    CHECK_I64(b[2].n_backward, 3); /* gelu, loss with its gradient, gelu's gradient */
    CHECK_I64(b[1].first_backward, 5);
    CHECK_I64(b[0].first_backward + b[0].n_backward, graph->n_nodes);
    CHECK(graph->nodes[2].op == SL_OP_GELU && graph->nodes[2].phase == SL_PHASE_BACKWARD);
    sl_graph_destroy(graph);
}

/* Losses of two blocks: both come from their backwards, each in its own block, and their gradients meet in what they share. */
TEST(several_losses)
{
    sl_graph *graph = new_graph(SL_F32, true);
    sl_value x = embedded(graph, 8), y, early;
    CHECK_OK(sl_graph_begin_block(graph, "layer"));
    x = linear(graph, "linear", x, param(graph, "layer", "w", 8, 8, true), x);
    early = loss_of(graph, x, param(graph, "early", "early", 9, 8, true));
    y = op(graph, SL_OP_GELU, "gelu", NULL, &x, 1);
    CHECK_OK(sl_graph_loss(graph, early, 0.25, "early"));
    CHECK_OK(sl_graph_begin_block(graph, "head"));
    sl_value late = loss_of(graph, y, param(graph, "head", "head", 9, 8, true));
    CHECK_OK(sl_graph_loss(graph, late, 1, "late"));
    CHECK_OK(sl_graph_finish(graph, SL_NO_VALUE));
    CHECK_I64(graph->n_losses, 2);
    CHECK(graph->losses[0].weight == 0.25 && graph->losses[0].targets == SL_INPUT_TARGETS);
    CHECK_I64(graph->losses[0].weights, -1);
    CHECK_I64(count_ops(graph, SL_OP_HEAD_LOSS), 0);
    CHECK_I64(graph->blocks[1].n_forward, 2);
    CHECK_I64(graph->blocks[2].n_forward, 0);
    CHECK_I64(graph->blocks[2].first_forward, 3);
    for (int32_t i = 0; i < graph->n_nodes; i++)
        if (graph->nodes[i].op == SL_OP_HEAD_LOSS_BWD) {
            bool first = graph->nodes[i].block == 1;
            CHECK_I64(graph->nodes[i].out[0], first ? early : late);
            CHECK_I64(sl_head_attrs(&graph->nodes[i].attrs)->loss, first ? 0 : 1);
        }
    CHECK_I64(count_ops(graph, SL_OP_HEAD_LOSS_BWD), 2);
    CHECK_I64(count_ops(graph, SL_OP_ADD), 1); /* head_loss_bwd cannot add to what gelu's backward wrote */
    sl_graph_destroy(graph);
}

static void check_loss_refused(sl_graph *graph, sl_value loss, double weight, const char *message)
{
    CHECK_FAILS(sl_graph_loss(graph, loss, weight, "extra"), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), message);
}

TEST(wrong_losses)
{
    sl_graph *graph = new_graph(SL_F32, true);
    sl_value x = embedded(graph, 8), w = param(graph, "head", "head", 9, 8, true), value;
    sl_value loss = loss_of(graph, x, w);
    CHECK_FAILS(sl_graph_finish(graph, SL_NO_VALUE), SL_E_INTERNAL);
    CHECK_CONTAINS(sl_error_message(), "without a weight");
    check_loss_refused(graph, x, 1, "an op that yields one");
    check_loss_refused(graph, loss, (double) NAN, "an op that yields one");
    for (int i = 0; i < SL_MAX_LOSSES; i++)
        CHECK_OK(sl_graph_loss(graph, i ? loss_of(graph, x, w) : loss, 1, "loss"));
    check_loss_refused(graph, loss, 1, "each given once");
    check_loss_refused(graph, loss_of(graph, x, w), 1, "at most 4");
    CHECK_FAILS(sl_graph_input_of(graph, SL_INPUT_IMAGES, NULL, 0, &value), SL_E_USAGE);
    CHECK_FAILS(sl_graph_input_of(graph, SL_INPUT_IMAGES, (const int64_t[]){3, 0}, 2, &value), SL_E_USAGE);
    CHECK_OK(sl_graph_input_of(graph, SL_INPUT_IMAGES, (const int64_t[]){3, 64}, 2, &value));
    CHECK_FAILS(sl_graph_input_of(graph, SL_INPUT_IMAGES, (const int64_t[]){3, 65}, 2, &value), SL_E_USAGE);
    sl_graph_destroy(graph);

    sl_graph_config config = {.tokens = 4, .max_segments = 1, .training = true, .sliced = true};
    sl_attrs attrs = {.raw = {0}};
    sl_value labels;
    CHECK_OK(sl_graph_create(&config, &graph));
    x = embedded(graph, 8);
    CHECK_OK(sl_graph_input(graph, SL_INPUT_LABELS, &labels));
    x = op(graph, SL_OP_EMBEDDING, "first", NULL, (const sl_value[]){x, labels}, 2); /* a row for the sample */
    w = param(graph, "head", "head", 9, 8, true);
    loss = op(graph, SL_OP_HEAD_LOSS, "loss", &attrs, (const sl_value[]){x, w, labels}, 3);
    check_loss_refused(graph, loss, 1, "chunks of whole sequences");
    sl_graph_destroy(graph);
}

TEST(wrong_models)
{
    sl_graph *graph = new_graph(SL_F32, true);
    sl_value x = embedded(graph, 8), out[SL_MAX_OUT];
    sl_value narrow = param(graph, "narrow", "narrow", 8, 7, true);
    sl_attrs attrs = {.raw = {0}};
    sl_matmul_set(&attrs)->trans_b = 1;
    CHECK_FAILS(sl_graph_op(graph, SL_OP_MATMUL, "layers.0.qkv", &attrs, (const sl_value[]){x, narrow}, 2, out),
                SL_E_INTERNAL);
    CHECK_CONTAINS(sl_error_message(), "layers.0.qkv");
    sl_value loss = loss_of(graph, x, param(graph, "head", "head", 9, 8, true));
    op(graph, SL_OP_GELU, "gelu", NULL, &x, 1);
    CHECK_FAILS(sl_graph_finish(graph, loss), SL_E_INTERNAL); /* something behind the loss */
    sl_graph_destroy(graph);
    sl_graph_config config = {.tokens = 0, .max_segments = 1};
    CHECK_FAILS(sl_graph_create(&config, &graph), SL_E_USAGE);
}

static sl_value reshaped(sl_graph *graph, sl_value x, int64_t columns)
{
    sl_attrs attrs = {.raw = {0}};
    sl_reshape_set(&attrs)->columns = columns;
    return op(graph, SL_OP_RESHAPE, "reshape", &attrs, &x, 1);
}

static sl_value sliced(sl_graph *graph, sl_value x, struct sl_slice_attrs part)
{
    sl_attrs attrs = {.raw = {0}};
    *sl_slice_set(&attrs) = part;
    return op(graph, SL_OP_SLICE, "slice", &attrs, &x, 1);
}

/* x [4, 32] -> h (bias), its heads [16, 8] normed and back; rows of a weight; columns, which are no view. */
TEST(views_share_bytes)
{
    for (int training = 0; training < 2; training++) {
        sl_graph *graph = new_graph(SL_F32, training);
        sl_value x = embedded(graph, 32);
        CHECK_OK(sl_graph_begin_block(graph, "middle"));
        sl_value w = param(graph, "middle", "w", 64, 32, true), bias = param(graph, "middle", "bias", 32, 0, false);
        sl_value half = sliced(graph, w, (struct sl_slice_attrs){32, 0, 32, 32});
        sl_value h = biased(graph, "linear", x, half, bias, SL_NO_VALUE), heads = reshaped(graph, h, 8);
        sl_value norm_w = param(graph, "middle", "norm", 8, 0, false);
        sl_value normed = op(graph, SL_OP_RMSNORM, "norm", NULL, (const sl_value[]){heads, norm_w}, 2);
        sl_value wide = reshaped(graph, reshaped(graph, normed, 16), 32);
        sl_value y = op(graph, SL_OP_ADD, "add", NULL, (const sl_value[]){wide, x}, 2);
        sl_value left = sliced(graph, y, (struct sl_slice_attrs){0, 0, 4, 16});
        CHECK_OK(sl_graph_begin_block(graph, "head"));
        CHECK_OK(sl_graph_finish(graph, loss_of(graph, left, param(graph, "head", "head", 9, 16, true))));
        CHECK_I64(count_ops(graph, SL_OP_RESHAPE), 0);
        CHECK_I64(count_ops(graph, SL_OP_SLICE), 1); /* the columns */
        CHECK_I64(count_ops(graph, SL_OP_SLICE_BWD), 2 * training);
        CHECK_I64(count_ops(graph, SL_OP_BIAS_GRAD), training); /* the norm's columns are not the bias's */
        CHECK_I64(graph->values[half].storage, w);
        CHECK_I64(graph->values[half].offset, 32 * 32 * 4);
        CHECK_I64(graph->values[heads].storage, h);
        CHECK_I64(graph->values[wide].storage, normed);
        CHECK(graph->values[wide].is_view && !graph->values[left].is_view && graph->values[left].storage == left);
        int32_t nodes = 0;
        for (int32_t b = 0; b < graph->n_blocks; b++) { /* one after the other, all of them */
            CHECK_I64(graph->blocks[b].first_forward, nodes);
            nodes += graph->blocks[b].n_forward;
        }
        for (int32_t b = graph->n_blocks - 1; b >= 0 && training; b--) {
            CHECK_I64(graph->blocks[b].first_backward, nodes);
            nodes += graph->blocks[b].n_backward;
        }
        CHECK_I64(nodes, graph->n_nodes);
        sl_graph_destroy(graph);
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
    RUN(groups_are_laid_out);
    RUN(groups_must_be_whole);
    RUN(residuals_share_storage);
    RUN(shared_bytes_are_not_added_to);
    RUN(twice_the_same);
    RUN(parameter_gradients);
    RUN(biases_are_summed_on_the_way);
    RUN(biases_are_summed_last);
    RUN(biases_are_summed_before);
    RUN(biases_are_summed_alone);
    RUN(rematerialize_in_place);
    RUN(blocks);
    RUN(views_share_bytes);
    RUN(several_losses);
    RUN(wrong_losses);
    RUN(additions_join_the_multiply);
    RUN(splits_are_left_out);
    RUN(wrong_models);
    return test_end();
}
