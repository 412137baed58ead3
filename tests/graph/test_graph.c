/* The graph by itself: group layout, sums of gradients, passing through residual additions, the order of blocks. */
#include <math.h>

#include "build.h"
#include "ops/reshape.h"
#include "ops/slice.h"

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
    for (int32_t i = 0; i < graph->n_nodes; i++) { /* what an op does not have is absent */
        if (graph->nodes[i].op == SL_OP_ADD)
            CHECK(graph->nodes[i].in[0] >= 0 && graph->nodes[i].in[1] >= 0 &&
                  graph->nodes[i].in[0] != graph->nodes[i].in[1]);
        for (int k = graph->nodes[i].n_in; k < SL_MAX_IN; k++)
            CHECK_I64(graph->nodes[i].in[k], SL_NO_VALUE);
        for (int k = graph->nodes[i].n_out; k < SL_MAX_OUT; k++)
            CHECK_I64(graph->nodes[i].out[k], SL_NO_VALUE);
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

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(groups_are_laid_out);
    RUN(groups_must_be_whole);
    RUN(residuals_share_storage);
    RUN(shared_bytes_are_not_added_to);
    RUN(twice_the_same);
    RUN(parameter_gradients);
    RUN(blocks);
    RUN(views_share_bytes);
    RUN(several_losses);
    RUN(wrong_losses);
    RUN(wrong_models);
    return test_end();
}
