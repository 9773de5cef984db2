//@ present warp-shuffle-reduction
__device__ float total(float v) {
    for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
    return v;
}
//@ present warp-shuffle-reduction with a named maximum
__device__ float top(float v) {
    for (int o = 16; o > 0; o /= 2) v = fmaxf(v, __shfl_down_sync(0xffffffffu, v, o));
    return v;
}
//@ absent warp-shuffle-reduction because one lane tells the others
__device__ float tell(float v) { return __shfl_sync(0xffffffffu, v, 0); }
//@ present warp-shuffle-scan
__device__ int prefix(int v, int lane) {
    for (int d = 1; d < 32; d *= 2) {
        const int left = __shfl_up_sync(0xffffffffu, v, d);
        if (lane >= d) v += left;
    }
    return v;
}
//@ absent warp-shuffle-scan
__device__ float sum(float v) {
    for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(0xffffffffu, v, o);
    return v;
}
//@ present block-reduction
__global__ void tree(const float* in, float* out) {
    __shared__ float box[256];
    box[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    for (int h = 128; h > 0; h >>= 1) {
        if (threadIdx.x < h) box[threadIdx.x] += box[threadIdx.x + h];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[0] = box[0];
}
//@ present block-reduction in two levels
__global__ void levels(const float* in, float* out) {
    __shared__ float partial[32];
    float v = warp_sum(in[threadIdx.x]);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;
    __syncthreads();
    v = threadIdx.x < 8 ? partial[threadIdx.x] : 0.f;
    v = warp_sum(v);
    if (threadIdx.x == 0) out[0] = v;
}
//@ absent block-reduction because a warp is no block
__device__ float total(float v) {
    for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
    return v;
}
//@ present block-scan
__global__ void hillis(const int* in, int* out) {
    __shared__ int box[256];
    box[threadIdx.x] = in[threadIdx.x];
    for (int d = 1; d < 256; d <<= 1) {
        __syncthreads();
        const int left = threadIdx.x >= d ? box[threadIdx.x - d] : 0;
        __syncthreads();
        box[threadIdx.x] += left;
    }
    out[threadIdx.x] = box[threadIdx.x];
}
//@ present block-scan from cub
__global__ void scanned(int* data) {
    using Scan = cub::BlockScan<int, 128>;
    __shared__ typename Scan::TempStorage storage;
    int v = data[threadIdx.x];
    Scan(storage).InclusiveSum(v, v);
    data[threadIdx.x] = v;
}
//@ absent block-scan
__global__ void tree(float* out) {
    __shared__ float box[256];
    for (int h = 128; h > 0; h >>= 1) {
        if (threadIdx.x < h) box[threadIdx.x] += box[threadIdx.x + h];
        __syncthreads();
    }
    out[0] = box[0];
}
//@ present associative-scan-operator
struct Pair { float a, b; };
__device__ Pair join(Pair first, Pair second) { return {first.a * second.a, second.a * first.b + second.b}; }
__device__ Pair warp_scan(Pair v, int lane) {
    for (int d = 1; d < 32; d *= 2) {
        Pair left{__shfl_up_sync(~0u, v.a, d), __shfl_up_sync(~0u, v.b, d)};
        if (lane >= d) v = join(left, v);
    }
    return v;
}
//@ absent associative-scan-operator because it adds
__global__ void sums(int* data) {
    using Scan = cub::BlockScan<int, 128>;
    __shared__ typename Scan::TempStorage storage;
    int v = data[threadIdx.x];
    Scan(storage).InclusiveSum(v, v);
    data[threadIdx.x] = v;
}
//@ absent associative-scan-operator because nothing is scanned
struct Complex { float re, im; };
__device__ Complex times(Complex a, Complex b) { return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }
//@ present chunked-scan-carry
__global__ void long_scan(const int* in, int* out, int n) {
    int carry = 0;
    for (int chunk = 0; chunk < n; chunk += 256) {
        int v = block_scan(in[chunk + threadIdx.x]);
        out[chunk + threadIdx.x] = v + carry;
        carry += block_total(v);
    }
}
//@ present chunked-scan-carry with the chunk in a function
struct Memory { float carried[16]; };
__device__ float scan_once(float v);
__device__ void do_chunk(const float* in, float* out, Memory& memory, int chunk) {
    const float before = memory.carried[0];
    const float h = warp_inclusive_scan(in[chunk + threadIdx.x]) + before;
    out[chunk + threadIdx.x] = h;
    if (threadIdx.x == 31) memory.carried[0] = h;
}
__global__ void run(const float* in, float* out, int n) {
    __shared__ Memory memory;
    for (int chunk = 0; chunk < n; chunk += 32) do_chunk(in, out, memory, chunk);
}
//@ absent chunked-scan-carry because nothing is scanned
__global__ void running_mean(const float* in, float* out, int n) {
    float running = 0.f;
    for (int i = 0; i < n; ++i) running = 0.9f * running + in[i];
    out[0] = running;
}
//@ present warp-vote
__global__ void any(const int* in, int* out) { if (__any_sync(0xffffffffu, in[threadIdx.x])) out[0] = 1; }
//@ absent warp-vote
__global__ void mask(unsigned* out) { out[0] = __activemask(); }
//@ present atomic-accumulation
__global__ void histogram(const int* in, int* bins) { atomicAdd(&bins[in[threadIdx.x]], 1); }
//@ absent atomic-accumulation because it draws a ticket
__global__ void last(unsigned* counter, float* out) {
    const unsigned ticket = atomicAdd(counter, 1u);
    if (ticket == gridDim.x - 1) out[0] = 1.f;
}
//@ absent atomic-accumulation because it takes a lock
__global__ void hold(int* lock) { while (atomicCAS(lock, 0, 1) != 0) {} atomicExch(lock, 0); }
//@ present split-k-reduction
__global__ void partials(const float* a, float* partial, int k, int split_k) {
    const int first = blockIdx.z * (k / split_k);
    float sum = 0.f;
    for (int i = first; i < first + k / split_k; ++i) sum += a[i];
    partial[blockIdx.z * 256 + threadIdx.x] = sum;
}
__global__ void combine(const float* partial, float* out, int split_k) {
    float sum = 0.f;
    for (int s = 0; s < split_k; ++s) sum += partial[s * 256 + threadIdx.x];
    out[threadIdx.x] = sum;
}
//@ absent split-k-reduction
__global__ void whole(const float* a, float* out, int k) {
    float sum = 0.f;
    for (int i = 0; i < k; ++i) sum += a[i];
    out[threadIdx.x] = sum;
}
