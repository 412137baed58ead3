/* Descriptors of optimizers are complete and agree with their ops; options shared by several are the same option. */
#include "ops/common.h"
#include "optim/optimizer.h"
#include "test.h"

TEST(complete)
{
    for (int i = 0; i < SL_OPTIMIZER_COUNT; i++) {
        const sl_optimizer_def *def = sl_optimizer_of((sl_optimizer) i);
        const sl_op_def *op = sl_op(def->op);
        sl_optimizer found = SL_OPTIMIZER_COUNT;
        REQUIRE(def->name && def->help && def->set_attrs);
        CHECK(sl_optimizer_find(def->name, &found) && (int) found == i);
        CHECK(op->category == SL_CAT_OPTIMIZER && op->fill && op->shapes && op->clear_stream);
        CHECK(op->linear == (def->granularity == SL_UPDATE_FLAT));
        CHECK(op->linear || op->estimate_workspace);
        CHECK(op->cases && op->n_cases > 0 && op->attrs_bytes > 0);
        CHECK_I64(op->n_in, 3);
        CHECK_U64(op->optional_in, 1u << 2);     /* the gate */
        CHECK_I64(op->n_out, def->n_states + 2); /* the parameter, its states, the master copy */
        CHECK_U64(op->optional_out, 1u << (def->n_states + 1));
        CHECK_U64(op->updates, (1u << op->n_out) - 1);
        CHECK(def->n_states >= 0 && def->n_states <= SL_MAX_STATES);
        CHECK(def->granularity != SL_UPDATE_MATRIX || sl_optimizer_of(def->others)->granularity == SL_UPDATE_FLAT);
        /* Bits that depend on the device are those of kernels with a tolerance. */
        CHECK_I64(def->device_only, op->tolerance[0] > 0 || op->tolerance[1] > 0);
        CHECK(def->n_options >= 0 && def->n_options <= SL_MAX_OPTIMIZER_OPTIONS);
        for (int k = 0; k < def->n_options; k++) {
            const sl_optimizer_option *option = &def->options[k];
            REQUIRE(option->name && option->value && option->fact && option->help);
            CHECK(option->low < option->high);
            float options[SL_MAX_OPTIMIZER_OPTIONS];
            sl_optimizer_defaults((sl_optimizer) i, options);
            CHECK((double) options[k] >= option->low && (double) options[k] <= option->high);
            CHECK_I64(sl_optimizer_option_index((sl_optimizer) i, option->name), k);
        }
    }
    CHECK(!sl_optimizer_find("none", &(sl_optimizer){0}));
    CHECK_I64(sl_optimizer_option_index(SL_OPTIMIZER_SGD, "beta1"), -1);
}

/* --help has one line for an option, whoever uses it. */
TEST(shared_options)
{
    for (int a = 0; a < SL_OPTIMIZER_COUNT; a++)
        for (int b = 0; b < a; b++) {
            const sl_optimizer_def *one = sl_optimizer_of((sl_optimizer) a), *other = sl_optimizer_of((sl_optimizer) b);
            for (int k = 0; k < one->n_options; k++) {
                int j = sl_optimizer_option_index((sl_optimizer) b, one->options[k].name);
                if (j < 0)
                    continue;
                CHECK_STR(one->options[k].fact, other->options[j].fact);
                CHECK_STR(one->options[k].help, other->options[j].help);
                CHECK(one->options[k].low == other->options[j].low && one->options[k].high == other->options[j].high);
            }
        }
}

/* Options and the update's own values reach the op, in their places. */
TEST(attributes)
{
    const float options[SL_MAX_OPTIMIZER_OPTIONS] = {0.5f, 0.25f, 0.125f};
    for (int i = 0; i < SL_OPTIMIZER_COUNT; i++) {
        const sl_optimizer_def *def = sl_optimizer_of((sl_optimizer) i);
        sl_update_tensor tensors[2] = {{5, 3, true}, {5, 3, true}};
        sl_update update = {.options = options,
                            .weight_decay = 3,
                            .decayed = 7,
                            .stream = 11,
                            .stochastic = true,
                            .n_tensors = def->granularity == SL_UPDATE_FLAT ? 0 : 2,
                            .tensors = tensors};
        sl_attrs attrs = {{0}}, other = {{0}};
        def->set_attrs(&update, &attrs);
        update.stream = 12;
        def->set_attrs(&update, &other);
        CHECK(memcmp(&attrs, &other, sizeof attrs) != 0);
        sl_op(def->op)->clear_stream(&attrs);
        sl_op(def->op)->clear_stream(&other);
        CHECK(memcmp(&attrs, &other, sizeof attrs) == 0);
        if (def->granularity == SL_UPDATE_FLAT) {
            update.decayed = 5;
            def->set_attrs(&update, &other);
            sl_op(def->op)->clear_stream(&other);
            sl_op(def->op)->shorten(&attrs, 5);
            CHECK(memcmp(&attrs, &other, sizeof attrs) == 0);
        } else {
            tensors[0].decayed = tensors[1].decayed = false;
            def->set_attrs(&update, &other);
            CHECK(memcmp(&attrs, &other, sizeof attrs) != 0);
            tensors[0] = tensors[1] = (sl_update_tensor){3, 5, true};
            def->set_attrs(&update, &other);
            sl_op(def->op)->clear_stream(&other);
            CHECK((memcmp(&attrs, &other, sizeof attrs) != 0) == (def->granularity == SL_UPDATE_MATRIX));
            tensors[0] = tensors[1] = (sl_update_tensor){5, 3, true};
        }
        for (int k = 0; k < def->n_options; k++) {
            float changed[SL_MAX_OPTIMIZER_OPTIONS];
            memcpy(changed, options, sizeof changed);
            changed[k] += 1;
            update.options = changed;
            def->set_attrs(&update, &other);
            sl_op(def->op)->clear_stream(&other);
            CHECK_MSG(memcmp(&attrs, &other, sizeof attrs) != 0, "%s: --%s reaches nothing", def->name,
                      def->options[k].name);
        }
    }
}

/* Bias corrections of two moments: 1 - beta^t. */
TEST(corrections)
{
    const float options[SL_MAX_OPTIMIZER_OPTIONS] = {0.5f, 0.75f, 0};
    for (int i = 0; i < SL_OPTIMIZER_COUNT; i++) {
        const sl_optimizer_def *def = sl_optimizer_of((sl_optimizer) i);
        float corrections[2] = {0};
        CHECK((def->correct != NULL) == (def->n_states == 2));
        if (!def->correct)
            continue;
        def->correct(options, 3, corrections);
        CHECK(corrections[0] == 1 - 0.125f && corrections[1] == 1 - 0.421875f);
    }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(complete);
    RUN(shared_options);
    RUN(attributes);
    RUN(corrections);
    return test_end();
}
