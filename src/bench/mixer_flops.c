/*
 * The formulas, with D = dim, F = ffn, T tokens, S = rows*columns of the grid, n = side^2 patches:
 *
 *   patches 2*3*D*P^2*n     position n*D     RMSNorm(t, d) 3*t*d     LayerScale T*D     MLP 4*T*D*F + T*F
 *   attention 8*T*D^2 + 2*RMSNorm(T, head_dim) + 4*T*D (rotation) + 4*T^2*D
 *   Hyena     8*S*D^2 + 2*3D*9*S (short convolution) + 13*D*S (norms and gates) + CKConv
 *   CKConv    SIREN + transforms * 5*D*prod(N)*sum(log2 N) + 6*D*prod(N) + D*S,  N = min(s + (k+1)/2, 2 s), k = 2 s - 1
 *             3 transforms while the kernel is new, 2 once its transform is kept
 *   SIREN     G*(5*E) + 2*G*(2*E^2 + E) + 2*G*E*D,  G = prod(2 s - 1), E = 32
 *
 * The q and k norms are counted for one head, as published (six times too low, and negligible).
 */
#include "bench/mixer_flops.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "core/status.h"

enum { SIREN_WIDTH = 32, SIREN_HIDDEN = 2, FILM_WIDTH = 64, SHORT_TAPS = 9, REGISTERS = 4 };

const sl_vit sl_vit5_small = {.dim = 384, .ffn = 1536, .patch = 16, .head_dim = 64, .blocks = 12, .classes = 1000};

static double rmsnorm(double tokens, double dim)
{
    return 3 * tokens * dim;
}

double sl_flops_attention(const sl_vit *vit, int64_t tokens)
{
    double t = (double) tokens, d = (double) vit->dim;
    return 8 * t * d * d + 2 * rmsnorm(t, (double) vit->head_dim) + 4 * t * d + 4 * t * t * d;
}

static double kernel_points(int64_t rows, int64_t columns)
{
    return (double) (2 * rows - 1) * (double) (2 * columns - 1);
}

static double siren(const sl_vit *vit, int64_t rows, int64_t columns)
{
    double g = kernel_points(rows, columns), e = SIREN_WIDTH, axes = 2;
    return g * (2 * axes * e + e) + SIREN_HIDDEN * g * (2 * e * e + e) + 2 * g * e * (double) vit->dim;
}

/* Padded length of a transform over an axis of `size` with a kernel twice as long. */
static double padded(int64_t size)
{
    int64_t kernel = 2 * size - 1;
    return (double) SL_MIN(size + (kernel + 1) / 2, 2 * size);
}

double sl_flops_ckconv(const sl_vit *vit, sl_mixer mixer, int64_t rows, int64_t columns)
{
    bool kept = mixer == SL_MIXER_HYENA_INFERENCE;
    double d = (double) vit->dim, n0 = padded(rows), n1 = padded(columns), product = n0 * n1;
    double transforms = (kept ? 2 : 3) * 5 * d * product * (log2(n0) + log2(n1));
    return (kept ? 0 : siren(vit, rows, columns)) + transforms + 6 * d * product + d * (double) (rows * columns);
}

/* The small network that makes scale and shift of each sine layer from the pooled registers. */
static double film(const sl_vit *vit, int64_t rows, int64_t columns, int64_t registers)
{
    double d = (double) vit->dim, r = (double) registers, out = 2 * SIREN_HIDDEN * SIREN_WIDTH;
    return 2 * d * FILM_WIDTH + FILM_WIDTH + 2 * FILM_WIDTH * out +
           SIREN_HIDDEN * (2 * kernel_points(rows, columns) * SIREN_WIDTH) + 3 * r + 2 * r * d;
}

double sl_flops_hyena(const sl_vit *vit, sl_mixer mixer, int64_t rows, int64_t columns, int64_t registers)
{
    double d = (double) vit->dim, s = (double) (rows * columns);
    double projections = 8 * s * d * d, short_convolution = 2 * 3 * d * SHORT_TAPS * s;
    double norms_and_gates = 3 * d * s + 2 * d * s + 3 * d * s + 2 * d * s + 3 * d * s;
    double all = projections + short_convolution + norms_and_gates + sl_flops_ckconv(vit, mixer, rows, columns);
    return all + (mixer == SL_MIXER_HYENA_FILM ? film(vit, rows, columns, registers) : 0);
}

static double mlp(const sl_vit *vit, double tokens)
{
    return 4 * tokens * (double) vit->dim * (double) vit->ffn + tokens * (double) vit->ffn;
}

/* Everything of a block but its mixer. */
static double around(const sl_vit *vit, double tokens)
{
    double d = (double) vit->dim;
    return 2 * rmsnorm(tokens, d) + 2 * tokens * d + mlp(vit, tokens);
}

static double ends(const sl_vit *vit, int64_t side)
{
    double d = (double) vit->dim, n = (double) (side * side), p = (double) vit->patch;
    return 2 * 3 * d * p * p * n + n * d + rmsnorm(1, d) + 2 * d * (double) vit->classes;
}

double sl_flops_network(const sl_vit *vit, sl_mixer mixer, int64_t side)
{
    double block;
    if (mixer == SL_MIXER_ATTENTION) {
        int64_t tokens = side * side + 1 + REGISTERS;
        block = around(vit, (double) tokens) + sl_flops_attention(vit, tokens);
    } else {
        int64_t registers = side - 1, tokens = side * side + 1 + registers; /* side + 1 rows of side */
        block = around(vit, (double) tokens) + sl_flops_hyena(vit, mixer, side + 1, side, registers);
    }
    return ends(vit, side) + (double) vit->blocks * block;
}

double sl_flops_hybrid(const sl_vit *vit, const char *pattern, int64_t side)
{
    int64_t tokens = side * side + 1 + REGISTERS, rows = SL_DIV_UP(tokens, side), grid = rows * side;
    double all = ends(vit, side), response_norm = 6 * (double) grid * (double) vit->dim;
    double hyena =
        around(vit, (double) grid) + sl_flops_hyena(vit, SL_MIXER_HYENA, rows, side, REGISTERS) + response_norm;
    double attention = around(vit, (double) tokens) + sl_flops_attention(vit, tokens);
    size_t length = strlen(pattern);
    for (int64_t b = 0; b < vit->blocks; b++)
        all += pattern[(size_t) b % length] == 'H' ? hyena : attention;
    return all;
}

int64_t sl_params_hybrid(const sl_vit *vit, const char *pattern, int64_t side)
{
    int64_t d = vit->dim, e = SIREN_WIDTH;
    int64_t common = 4 * d * d + 2 * d * vit->ffn + 2 * d /* norms */ + 2 * d /* layer scales */;
    int64_t attention = common + 2 * vit->head_dim;
    int64_t network = 2 * e + e + SIREN_HIDDEN * (e * e + e) + e * d;
    int64_t hyena = common + 3 * d * SHORT_TAPS + network + d /* shortcut */ + 2 * d /* norms */ + 2 * d /* response */;
    int64_t all = 3 * d * vit->patch * vit->patch + side * side * d + (1 + REGISTERS) * d + d + d * vit->classes;
    size_t length = strlen(pattern);
    for (int64_t b = 0; b < vit->blocks; b++)
        all += pattern[(size_t) b % length] == 'H' ? hyena : attention;
    return all;
}

void sl_flops_matmuls(const sl_vit *vit, int64_t side, sl_vit_matmuls *f)
{
    double d = (double) vit->dim, n = (double) (side * side), t = n + 1 + REGISTERS, blocks = (double) vit->blocks;
    f->projections = blocks * 8 * t * d * d;
    f->attention = blocks * 4 * t * t * d;
    f->mlp = blocks * 4 * t * d * (double) vit->ffn;
    f->patches = 2 * 3 * d * (double) (vit->patch * vit->patch) * n;
    f->head = 2 * d * (double) vit->classes;
    f->total = f->projections + f->attention + f->mlp + f->patches + f->head;
}
