//@ present async-copy
__device__ void commit() { asm volatile("cp.async.commit_group;\n" ::); }
//@ present async-copy through the pipeline interface
__global__ void load(const float4* in) {
    __shared__ float4 box[32];
    __pipeline_memcpy_async(&box[threadIdx.x], in + threadIdx.x, 16);
    __pipeline_commit();
}
//@ absent async-copy because bulk copies are another engine
__device__ void bulk(unsigned to, const void* from, unsigned bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 64, [%2];" ::"r"(to), "l"(from), "r"(bar));
}
//@ absent async-copy because it is only spoken of
// cp.async would help here
__global__ void plain(const float* in, float* out) { printf("no cp.async here"); out[0] = in[0]; }
//@ absent async-copy because the branch is dead
#if 0
__device__ void commit() { asm volatile("cp.async.commit_group;\n" ::); }
#endif
__global__ void k(float* out) { out[0] = 0.f; }
//@ absent async-copy because it never runs
__global__ void never(float* out) {
    if (false) { asm volatile("cp.async.commit_group;\n" ::); }
    out[0] = 0.f;
}
//@ present tma-bulk-copy
__device__ void bulk(unsigned to, const void* from, unsigned bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 64, [%2];" ::"r"(to), "l"(from), "r"(bar));
}
//@ absent tma-bulk-copy
__device__ void small(unsigned to, const void* from) { asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from)); }
//@ present software-pipelining
__global__ void piped(const float* in, float* out, int tiles) {
    __shared__ float box[2][256];
    box[0][threadIdx.x] = in[threadIdx.x];
    int stage = 0;
    float sum = 0.f;
    for (int t = 0; t < tiles; ++t) {
        __syncthreads();
        if (t + 1 < tiles) box[stage ^ 1][threadIdx.x] = in[(t + 1) * 256 + threadIdx.x];
        sum += box[stage][255 - threadIdx.x];
        stage ^= 1;
    }
    out[threadIdx.x] = sum;
}
//@ present software-pipelining in registers
__global__ void ahead(const float* in, float* out, int n) {
    float current = in[threadIdx.x], next_value, sum = 0.f;
    for (int i = 0; i < n; ++i) {
        next_value = in[(i + 1) * 256 + threadIdx.x];
        sum += current * current;
        current = next_value;
    }
    out[threadIdx.x] = sum;
}
//@ absent software-pipelining because one buffer waits for its load
__global__ void single(const float* in, float* out, int tiles) {
    __shared__ float box[256];
    float sum = 0.f;
    for (int t = 0; t < tiles; ++t) {
        __syncthreads();
        box[threadIdx.x] = in[t * 256 + threadIdx.x];
        __syncthreads();
        sum += box[255 - threadIdx.x];
    }
    out[threadIdx.x] = sum;
}
//@ absent software-pipelining because even and odd are data
__global__ void parity(const float* in, float* out, int n) {
    __shared__ float box[2];
    for (int i = 0; i < n; ++i) {
        const float previous = box[(i + 1) % 2];
        if (threadIdx.x == 0) box[i % 2] = previous + in[i];
        __syncthreads();
    }
    out[0] = box[0];
}
//@ present async-barrier
__device__ void arrive(unsigned bar) { asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(bar)); }
//@ absent async-barrier
__global__ void plain() { __syncthreads(); }
