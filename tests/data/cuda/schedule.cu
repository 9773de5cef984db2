//@ present persistent-kernel
__global__ void persistent(const float* in, float* out, int tiles) {
    __shared__ float box[64];
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        box[threadIdx.x] = in[tile * 64 + threadIdx.x];
        __syncthreads();
        out[tile * 64 + threadIdx.x] = box[63 - threadIdx.x];
        __syncthreads();
    }
}
void launch(const float* in, float* out, int tiles, const cudaDeviceProp& device) {
    persistent<<<device.multiProcessorCount, 64>>>(in, out, tiles);
}
//@ absent persistent-kernel because the loop is element-wise
__global__ void scale(float* x, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) x[i] *= 2.f;
}
//@ present grid-stride-loop
__global__ void scale(float* x, int n) {
    const int stride = blockDim.x * gridDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) x[i] *= 2.f;
}
//@ absent grid-stride-loop because the stride is the block
__global__ void row(float* x, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) x[blockIdx.x * n + i] *= 2.f;
}
//@ present block-barrier
__global__ void k() { __syncthreads(); }
//@ present block-barrier by cooperative groups
namespace cg = cooperative_groups;
__global__ void k() { cg::thread_block cta = cg::this_thread_block(); cg::sync(cta); }
//@ absent block-barrier
__global__ void k() { __syncwarp(); __threadfence(); }
//@ present named-barrier
__device__ void half_block() { asm volatile("bar.sync 1, 128;" ::); }
//@ absent named-barrier
__device__ void everyone() { asm volatile("bar.sync 0;" ::); }
//@ present warp-specialization
__global__ void roles(float* out) {
    const int warp_role = threadIdx.x / 128;
    if (warp_role == kProducer) { warpgroup_reg_dealloc<40>(); } else { warpgroup_reg_alloc<232>(); }
}
//@ absent warp-specialization because every warp computes
__global__ void shares(const float* a, const float* b, float* out) {
    __shared__ float box[64];
    if (threadIdx.x < 32) box[threadIdx.x] = a[threadIdx.x]; else box[threadIdx.x] = b[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = box[63 - threadIdx.x];
}
//@ present warp-synchronous
__global__ void k(float* out) { __shared__ float box[32]; box[threadIdx.x] = 1.f; __syncwarp(); out[0] = box[31]; }
//@ absent warp-synchronous
__global__ void k() { __syncthreads(); }
//@ present launch-bounds
__global__ void __launch_bounds__(256, 2) k(float* out) { out[0] = 1.f; }
//@ absent launch-bounds
struct Traits { static constexpr int kMaxThreads = 256; };
__global__ void k(float* out) { out[0] = Traits::kMaxThreads; }
//@ present thread-block-cluster
__global__ void __cluster_dims__(2, 1, 1) k(float* out) { out[0] = 1.f; }
//@ absent thread-block-cluster
__global__ void cluster_points(const float* centers, float* out) { out[0] = centers[0]; }
//@ present cooperative-groups
namespace cg = cooperative_groups;
__global__ void k() { auto tile = cg::tiled_partition<32>(cg::this_thread_block()); tile.sync(); }
//@ absent cooperative-groups
#include <cooperative_groups.h>
__global__ void k(float* out) { out[0] = 1.f; }
//@ present programmatic-dependent-launch
__global__ void k(float* out) { cudaGridDependencySynchronize(); out[0] = 1.f; }
//@ absent programmatic-dependent-launch
void wait() { cudaDeviceSynchronize(); }
//@ present inline-ptx
__device__ int lane() { int l; asm("mov.u32 %0, %%laneid;" : "=r"(l)); return l; }
//@ absent inline-ptx
__device__ const char* name() { return "asm volatile"; }
