/* The tile instructions gemm_amx.c uses. With SL_AMX_EMULATE they are played by plain C on eight arrays, so that the
 * very same kernel source is tested on machines without AMX; the sums follow the manual's order (even and odd k of a
 * tile in two chains, added to C at the end), without its flushing of denormals. */
#ifndef SL_DEVICE_CPU_GEMM_AMX_TILES_H
#define SL_DEVICE_CPU_GEMM_AMX_TILES_H

#include <immintrin.h>
#include <stdint.h>

/* All eight tiles alike: 16 rows of 64 bytes. */
typedef struct amx_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} amx_config;

#ifndef SL_AMX_EMULATE
#define amx_load_config(config) _tile_loadconfig(config)
#define amx_release() _tile_release()
#define amx_zero(t) _tile_zero(t)
#define amx_load(t, from, stride) _tile_loadd(t, from, stride)
#define amx_store(t, to, stride) _tile_stored(t, to, stride)
#define amx_multiply(c, a, b) _tile_dpbf16ps(c, a, b)
#else
#include <string.h>

#include "core/bf16.h"
#include "core/status.h"

typedef union amx_tile {
    float f32[16][16];
    sl_bf16 bf16[16][32];
} amx_tile;
static _Thread_local amx_tile amx_tiles[8];
static _Thread_local int amx_configured;

static inline void amx_load_config(const amx_config *config)
{
    SL_ASSERT(config->palette == 1 && !config->start_row);
    for (int t = 0; t < 8; t++)
        SL_ASSERT(config->rows[t] == 16 && config->row_bytes[t] == 64);
    amx_configured = 1;
    memset(amx_tiles, 0, sizeof amx_tiles);
}
static inline void amx_release(void)
{
    SL_ASSERT(amx_configured);
    amx_configured = 0;
    memset(amx_tiles, 0xff, sizeof amx_tiles);
}
static inline void amx_zero(int t)
{
    SL_ASSERT(amx_configured);
    memset(&amx_tiles[t], 0, sizeof amx_tiles[t]);
}
static inline void amx_load(int t, const void *from, int64_t stride)
{
    SL_ASSERT(amx_configured);
    for (int row = 0; row < 16; row++)
        memcpy(amx_tiles[t].f32[row], (const char *) from + row * stride, 64);
}
static inline void amx_store(int t, void *to, int64_t stride)
{
    SL_ASSERT(amx_configured);
    for (int row = 0; row < 16; row++)
        memcpy((char *) to + row * stride, amx_tiles[t].f32[row], 64);
}
static inline void amx_multiply(int c, int a, int b)
{
    SL_ASSERT(amx_configured);
    for (int row = 0; row < 16; row++)
        for (int column = 0; column < 16; column++) {
            float sum[2] = {0, 0};
            for (int k = 0; k < 32; k++)
                sum[k & 1] += sl_bf16_to_f32(amx_tiles[a].bf16[row][k]) *
                              sl_bf16_to_f32(amx_tiles[b].bf16[k / 2][2 * column + (k & 1)]);
            amx_tiles[c].f32[row][column] += sum[0] + sum[1];
        }
}
#endif
#endif
