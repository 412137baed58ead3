/*
 * Hopper's asynchronous instructions, each as a function: barriers in shared memory, bulk copies and reductions, products of a
 * warpgroup (128 threads). For sm_90a only.
 */
#ifndef SL_DEVICE_CUDA_HOPPER_CUH
#define SL_DEVICE_CUDA_HOPPER_CUH

#include <cuda.h>
#include <stdint.h>

namespace hopper
{

__device__ __forceinline__ uint32_t shared_address(const void *p)
{
    return (uint32_t) __cvta_generic_to_shared(p);
}

/* ---- barriers: 8 bytes of shared memory; `phase` flips each time all have arrived and all announced bytes are there ---- */

__device__ __forceinline__ void barrier_init(uint32_t barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}
/* Before the first copy that reports to a barrier. */
__device__ __forceinline__ void barriers_are_set()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barrier_arrive_expecting(uint32_t barrier, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_wait(uint32_t barrier, int phase)
{
    asm volatile("{\n.reg .pred p;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                 "@p bra done;\nbra again;\ndone:\n}" ::"r"(barrier),
                 "r"(phase)
                 : "memory");
}

/* ---- copies ---- */

/* What this thread has written to shared memory, for copies and products to read. */
__device__ __forceinline__ void fence_async()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void fetch_box(uint32_t to, const CUtensorMap *map, int column, int row, int matrix,
                                          uint32_t barrier)
{
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
        "[%5];" ::"r"(to),
        "l"(map), "r"(column), "r"(row), "r"(matrix), "r"(barrier)
        : "memory");
}
__device__ __forceinline__ void fetch_bytes(uint32_t to, const void *from, int bytes, uint32_t barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}
__device__ __forceinline__ void put_bytes(void *to, uint32_t from, int bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\ncp.async.bulk.commit_group;" ::"l"(to),
                 "r"(from), "r"(bytes)
                 : "memory");
}
__device__ __forceinline__ void add_f32(float *to, uint32_t from, int bytes)
{
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;\n"
                 "cp.async.bulk.commit_group;" ::"l"(to),
                 "r"(from), "r"(bytes)
                 : "memory");
}
/* The shared memory that this thread's copies and additions came from is free again; they are in memory. */
__device__ __forceinline__ void wait_until_read()
{
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
__device__ __forceinline__ void wait_until_written()
{
    asm volatile("cp.async.bulk.wait_group 0;\nfence.proxy.async;" ::: "memory");
}
__device__ __forceinline__ int load_acquire(const int *from)
{
    int value;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}
__device__ __forceinline__ void store_release(int *to, int value)
{
    asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
/* Four 8 x 8 matrices of bf16; lane i gives the address of row i % 8 of matrix i / 8. */
__device__ __forceinline__ void store_matrices(uint32_t to, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(a), "r"(b), "r"(c),
                 "r"(d)
                 : "memory");
}

/* ---- products: D[64, N] (+)= A[64, 16] B[16, N] of bf16, D in 4 N / 8 f32 registers per thread ----
 *
 * A tile in shared memory is made of panels of 64 columns: rows of 128 bytes, 16-byte pieces swizzled by row % 8. The low word of a
 * tile's descriptor is its address / 16, and for tiles that lie across k and have several panels the distance / 16 between
 * those in the upper half; the high word is the same for all (8 rows are 1024 bytes, swizzle of 128). ACROSS: k runs along the rows.
 */
__device__ __forceinline__ constexpr uint32_t place(uint32_t address, uint32_t panel_bytes = 0)
{
    return address >> 4 | (panel_bytes >> 4) << 16;
}
__device__ __forceinline__ void product_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void product_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* All but the last UNDER_WAY committed groups are done. */
template <int UNDER_WAY> __device__ __forceinline__ void product_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(UNDER_WAY) : "memory");
}

/* The compiler must not move what uses a product's result before the wait, which does not name it. */
template <int COUNT> __device__ __forceinline__ void product_settled(float (&d)[COUNT])
{
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}

#define SUMS8(d, i)                                                                                             \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
        "+f"(d[i + 7])
#define SUMS32(d, i) SUMS8(d, i), SUMS8(d, i + 8), SUMS8(d, i + 16), SUMS8(d, i + 24)
#define NAMES32                                                                              \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23," \
    "%24,%25,%26,%27,%28,%29,%30,%31"
#define NAMES64                                                                                 \
    NAMES32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51," \
            "%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define HIGH_WORD "0x40000040"

/* Both from shared memory. */
template <int A_ACROSS, int B_ACROSS>
__device__ __forceinline__ void product(float (&d)[32], uint32_t a, uint32_t b, int accumulate)
{
    asm volatile("{\n.reg .pred p;\n.reg .b64 a, b;\nsetp.ne.b32 p, %34, 0;\n"
                 "mov.b64 a, {%32, " HIGH_WORD "};\nmov.b64 b, {%33, " HIGH_WORD "};\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" NAMES32 "}, a, b, p, 1, 1, %35, %36;\n}"
                 : SUMS32(d, 0)
                 : "r"(a), "r"(b), "r"(accumulate), "n"(A_ACROSS), "n"(B_ACROSS));
}
template <int A_ACROSS, int B_ACROSS>
__device__ __forceinline__ void product(float (&d)[64], uint32_t a, uint32_t b, int accumulate)
{
    asm volatile("{\n.reg .pred p;\n.reg .b64 a, b;\nsetp.ne.b32 p, %66, 0;\n"
                 "mov.b64 a, {%64, " HIGH_WORD "};\nmov.b64 b, {%65, " HIGH_WORD "};\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" NAMES64 "}, a, b, p, 1, 1, %67, %68;\n}"
                 : SUMS32(d, 0), SUMS32(d, 32)
                 : "r"(a), "r"(b), "r"(accumulate), "n"(A_ACROSS), "n"(B_ACROSS));
}
/* A from registers, and added to what is there. */
template <int B_ACROSS> __device__ __forceinline__ void product_add(float (&d)[32], const uint32_t *a, uint32_t b)
{
    asm volatile("{\n.reg .b64 b;\nmov.b64 b, {%36, " HIGH_WORD "};\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" NAMES32
                 "}, {%32,%33,%34,%35}, b, 1, 1, 1, %37;\n}"
                 : SUMS32(d, 0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "n"(B_ACROSS));
}
template <int B_ACROSS> __device__ __forceinline__ void product_add(float (&d)[64], const uint32_t *a, uint32_t b)
{
    asm volatile("{\n.reg .b64 b;\nmov.b64 b, {%68, " HIGH_WORD "};\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" NAMES64
                 "}, {%64,%65,%66,%67}, b, 1, 1, 1, %69;\n}"
                 : SUMS32(d, 0), SUMS32(d, 32)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "n"(B_ACROSS));
}

#undef HIGH_WORD
#undef NAMES64
#undef NAMES32
#undef SUMS32
#undef SUMS8

} // namespace hopper
#endif
