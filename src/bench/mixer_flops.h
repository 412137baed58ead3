/* Arithmetic of ViT-5-Small with attention, Hyena or CKConv mixers, forward pass of one image, as the published
 * calculator counts it (every multiply-add two, every other operation one; residual additions not at all). */
#ifndef SL_BENCH_MIXER_FLOPS_H
#define SL_BENCH_MIXER_FLOPS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct sl_vit {
    int64_t dim, ffn, patch, head_dim, blocks, classes;
} sl_vit;
extern const sl_vit sl_vit5_small;

typedef enum sl_mixer {
    SL_MIXER_ATTENTION,
    SL_MIXER_HYENA,           /* training: the kernel is generated */
    SL_MIXER_HYENA_FILM,      /* and modulated per image */
    SL_MIXER_HYENA_INFERENCE, /* the kernel's transform is kept */
    SL_MIXER_COUNT
} sl_mixer;

/* One mixer over `tokens` (attention), or over a grid of rows x columns tokens (Hyena, CKConv) with `registers` for
 * FiLM. */
double sl_flops_attention(const sl_vit *vit, int64_t tokens);
double sl_flops_hyena(const sl_vit *vit, sl_mixer mixer, int64_t rows, int64_t columns, int64_t registers);
double sl_flops_ckconv(const sl_vit *vit, sl_mixer mixer, int64_t rows, int64_t columns);

/* The whole network over side x side patches. Attention sees 4 registers; Hyena fills a row with side - 1 of them. */
double sl_flops_network(const sl_vit *vit, sl_mixer mixer, int64_t side);
/* A pattern of 'A' (attention) and 'H' (Hyena with global response norm) repeated over the blocks, 4 registers, 14 x 14
 * patches; Hyena blocks see the tokens padded to whole rows. */
double sl_flops_hybrid(const sl_vit *vit, const char *pattern, int64_t side);
int64_t sl_params_hybrid(const sl_vit *vit, const char *pattern, int64_t side);

/* The GEMMs alone, which is what MFU counts: q, k, v and output; scores and their use; MLP; patches; head. */
typedef struct sl_vit_matmuls {
    double projections, attention, mlp, patches, head, total;
} sl_vit_matmuls;
void sl_flops_matmuls(const sl_vit *vit, int64_t side, sl_vit_matmuls *flops);

#endif
