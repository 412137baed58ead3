/* A sample and its partner are changed together, since each needs the other as it was. */
#include "image/mix.h"

#include <math.h>
#include <string.h>

enum { WEIGHT_BITS = 16, TRIES = 1000 };

sl_status sl_mix_recipe_check(const sl_mix_recipe *r)
{
    const double share[3] = {r->probability, r->switch_to_cut, r->smoothing};
    for (int i = 0; i < 3; i++)
        if (!(share[i] >= 0 && share[i] <= 1))
            return sl_fail(SL_E_USAGE, "%g as %s of mixing: use 0 to 1", share[i],
                           i == 0   ? "the probability"
                           : i == 1 ? "the share of CutMix"
                                    : "the label smoothing");
    if (!(r->mixup >= 0 && r->mixup <= 100 && r->cutmix >= 0 && r->cutmix <= 100))
        return sl_fail(SL_E_USAGE, "alpha %g of mixup and %g of CutMix: use 0 (never) to 100", r->mixup, r->cutmix);
    return SL_OK;
}

static double draw_normal(sl_draws *draws)
{
    double radius = sqrt(-2 * log(1 - sl_draw(draws)));
    return radius * cos(6.283185307179586 * sl_draw(draws));
}

/* Marsaglia and Tsang's method; for alpha < 1 a power of a uniform number turns Gamma(alpha + 1) into Gamma(alpha). */
static double draw_gamma(sl_draws *draws, double alpha)
{
    double boost = alpha < 1 ? pow(1 - sl_draw(draws), 1 / alpha) : 1;
    double d = (alpha < 1 ? alpha + 1 : alpha) - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (int i = 0; i < TRIES; i++) { /* more than 95 % of the tries succeed */
        double x = draw_normal(draws), v = 1 + c * x, u = 1 - sl_draw(draws);
        v = v * v * v;
        if (v > 0 && log(u) < 0.5 * x * x + d - d * v + d * log(v))
            return boost * d * v;
    }
    return boost * d;
}

static double draw_beta(sl_draws *draws, double alpha)
{
    double x = draw_gamma(draws, alpha), y = draw_gamma(draws, alpha);
    return x + y > 0 ? x / (x + y) : 0.5;
}

sl_mix sl_mix_of(const sl_mix_recipe *recipe, uint64_t seed, uint64_t batch, int64_t width, int64_t height)
{
    sl_draws draws = sl_draws_of(seed ^ UINT64_C(0x6d6978), 0, batch);
    sl_mix mix = {.kind = SL_MIX_NONE, .lambda = 1};
    double mixed = sl_draw(&draws), cut = sl_draw(&draws);
    if (mixed >= recipe->probability || (recipe->mixup <= 0 && recipe->cutmix <= 0))
        return mix;
    bool cuts = recipe->cutmix > 0 && (recipe->mixup <= 0 || cut < recipe->switch_to_cut);
    mix.kind = cuts ? SL_MIX_CUT : SL_MIX_UP;
    mix.lambda = draw_beta(&draws, cuts ? recipe->cutmix : recipe->mixup);
    if (!cuts)
        return mix;
    double side = sqrt(1 - mix.lambda);
    int64_t half_width = (int64_t) ((double) width * side) / 2, half_height = (int64_t) ((double) height * side) / 2;
    int64_t x = sl_draw_below(&draws, width), y = sl_draw_below(&draws, height);
    mix.left = SL_MAX(x - half_width, 0);
    mix.right = SL_MIN(x + half_width, width);
    mix.top = SL_MAX(y - half_height, 0);
    mix.bottom = SL_MIN(y + half_height, height);
    mix.lambda = 1 - (double) ((mix.right - mix.left) * (mix.bottom - mix.top)) / (double) (width * height);
    return mix;
}

static bool is_mixed(const sl_mix *mix, const int32_t *label, int64_t i, int64_t n)
{
    return mix->kind != SL_MIX_NONE && label[i] >= 0 && label[n - 1 - i] >= 0;
}

/* Exchanges the box of two images of `size` bytes a value. */
static void exchange_box(const sl_mix *mix, void *first, void *second, int64_t width, int64_t height, size_t size)
{
    char row[256];
    size_t bytes = (size_t) (mix->right - mix->left) * size;
    for (int64_t c = 0; c < 3; c++)
        for (int64_t y = mix->top; y < mix->bottom; y++) {
            size_t at = (size_t) ((c * height + y) * width + mix->left) * size;
            for (size_t done = 0, piece; done < bytes; done += piece) {
                piece = SL_MIN(bytes - done, sizeof row);
                memcpy(row, (char *) first + at + done, piece);
                memcpy((char *) first + at + done, (char *) second + at + done, piece);
                memcpy((char *) second + at + done, row, piece);
            }
        }
}

void sl_mix_bytes(const sl_mix *mix, const int32_t *label, unsigned char *planes, int64_t n, int64_t width,
                  int64_t height)
{
    int64_t values = 3 * width * height;
    uint32_t mine = (uint32_t) lrint(mix->lambda * (1 << WEIGHT_BITS)), other = (1u << WEIGHT_BITS) - mine;
    for (int64_t i = 0; i < n / 2; i++) {
        unsigned char *a = planes + i * values, *b = planes + (n - 1 - i) * values;
        if (!is_mixed(mix, label, i, n))
            continue;
        if (mix->kind == SL_MIX_CUT)
            exchange_box(mix, a, b, width, height, 1);
        for (int64_t k = 0; k < values && mix->kind == SL_MIX_UP; k++) {
            uint32_t x = a[k], y = b[k], half = 1u << (WEIGHT_BITS - 1);
            a[k] = (unsigned char) ((x * mine + y * other + half) >> WEIGHT_BITS);
            b[k] = (unsigned char) ((y * mine + x * other + half) >> WEIGHT_BITS);
        }
    }
}

void sl_mix_floats(const sl_mix *mix, const int32_t *label, float *planes, int64_t n, int64_t width, int64_t height)
{
    int64_t values = 3 * width * height;
    float mine = (float) mix->lambda, other = (float) (1 - mix->lambda);
    for (int64_t i = 0; i < n / 2; i++) {
        float *a = planes + i * values, *b = planes + (n - 1 - i) * values;
        if (!is_mixed(mix, label, i, n))
            continue;
        if (mix->kind == SL_MIX_CUT)
            exchange_box(mix, a, b, width, height, sizeof *a);
        for (int64_t k = 0; k < values && mix->kind == SL_MIX_UP; k++) {
            float x = a[k], y = b[k];
            a[k] = x * mine + y * other;
            b[k] = y * mine + x * other;
        }
    }
}

void sl_mix_targets(const sl_mix *mix, double smoothing, const int32_t *label, int64_t n, int64_t classes,
                    float *targets)
{
    float off = (float) (smoothing / (double) classes), on = (float) (1 - smoothing + smoothing / (double) classes);
    for (int64_t i = 0; i < n; i++, targets += classes) {
        bool labelled = label[i] >= 0 && label[i] < classes, mixed = is_mixed(mix, label, i, n);
        float mine = mixed ? (float) mix->lambda : 1, other = mixed ? (float) (1 - mix->lambda) : 0;
        for (int64_t k = 0; k < classes; k++) {
            float first = k == label[i] ? on : off, second = mixed && k == label[n - 1 - i] ? on : off;
            targets[k] = labelled ? first * mine + second * other : 0;
        }
    }
}
