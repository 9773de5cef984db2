//@ present tensor-core-mma
__device__ void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
//@ present tensor-core-mma in a macro
#define PRODUCT(d, a, b) \
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0}, {%1}, {%2}, {%0};" : "+d"(d) : "d"(a), "d"(b))
__global__ void k(double* out) { double d = 0; PRODUCT(d, out[0], out[1]); out[2] = d; }
//@ absent tensor-core-mma because warpgroups are another unit
__device__ void big() { asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {}, %0, %1;" ::"l"(0ull), "l"(0ull)); }
//@ present warpgroup-mma
__device__ void big() { asm volatile("wgmma.fence.sync.aligned;" ::); }
//@ absent warpgroup-mma
__device__ int warpgroup_index() { return threadIdx.x / 128; }
//@ present mixed-precision-accumulation
__global__ void dot(const __half* a, const __half* b, float* out, int n) {
    float sum = 0.f;
    for (int i = threadIdx.x; i < n; i += 32) sum += __half2float(a[i]) * __half2float(b[i]);
    out[threadIdx.x] = sum;
}
//@ present mixed-precision-accumulation of a template scalar
template <typename scalar_t>
__global__ void norm(const scalar_t* in, float* out, int n) {
    float square = 0.f;
    for (int i = threadIdx.x; i < n; i += 32) {
        const float x = static_cast<float>(in[i]);
        square += x * x;
    }
    out[threadIdx.x] = square;
}
//@ absent mixed-precision-accumulation because the input is float
__global__ void dot(const float* a, float* out, int n) {
    float sum = 0.f;
    for (int i = threadIdx.x; i < n; i += 32) sum += a[i] * a[i];
    out[threadIdx.x] = sum;
}
//@ absent mixed-precision-accumulation because nothing is summed
__global__ void widen(const __half* a, float* out) { out[threadIdx.x] = __half2float(a[threadIdx.x]); }
//@ present loop-unrolling
__global__ void k(float* out) {
#pragma unroll
    for (int i = 0; i < 4; ++i) out[i] = 0.f;
}
//@ absent loop-unrolling because one forbids it
__global__ void k(float* out) {
#pragma unroll 1
    for (int i = 0; i < 4; ++i) out[i] = 0.f;
}
//@ absent loop-unrolling because it is a comment
__global__ void k(float* out) {
    // #pragma unroll
    for (int i = 0; i < 4; ++i) out[i] = 0.f;
}
//@ present fast-math-intrinsics
__global__ void k(float* x) { x[0] = __expf(x[0]) * rsqrtf(x[1]); }
//@ absent fast-math-intrinsics
__global__ void k(float* x) { x[0] = expf(x[0]) + exp2f(x[1]) + sqrtf(x[2]); }
//@ present exp2-trick
__global__ void k(float* x, float scale) {
    const float scale_log2 = scale * 1.44269504f;
    x[0] = exp2f(x[0] * scale_log2 - x[1]);
}
//@ absent exp2-trick
__global__ void k(float* x) { x[0] = exp2f(x[0]); }
//@ present packed-half2-math
__global__ void k(__half2* x) { x[0] = __hfma2(x[1], x[2], x[3]); }
//@ present packed-half2-math by an operator
__global__ void k(__half2* x) {
    __half2 a = x[0], b = x[1];
    __half2 c = a * b;
    x[2] = c;
}
//@ absent packed-half2-math because pairs are only made and stored
__global__ void k(__half2* x, float a, float b) { x[0] = __floats2half2_rn(a * 2.f, b + 1.f); }
//@ present dequantize-in-register
__device__ __half2 unpack(unsigned q) {
    const unsigned h = (q & 0x000f000f) | 0x64006400;
    return __hsub2(*reinterpret_cast<const __half2*>(&h), __float2half2_rn(1032.f));
}
//@ present dequantize-in-register by nibbles
__global__ void k(const unsigned char* q, const float* scales, float* out) {
    const int low = (q[threadIdx.x] >> 4) & 0xF;
    out[threadIdx.x] = float(low) * scales[threadIdx.x / 16];
}
//@ absent dequantize-in-register because bits are a flag
__global__ void k(const unsigned* flags, float* out) { out[0] = ((flags[0] >> 4) & 0xF) ? 1.f : 0.f; }
//@ present int8-dot
__global__ void k(const int* a, int* out) { out[0] = __dp4a(a[0], a[1], out[0]); }
//@ absent int8-dot
__global__ void k(const signed char* a, int* out) { for (int i = 0; i < 4; ++i) out[0] += a[i] * a[i + 4]; }
//@ present compile-time-specialization
template <bool kCausal, int kWidth>
__global__ void k(float* out) {
    if constexpr (kCausal) out[0] = 1.f;
}
//@ present compile-time-specialization by instances
template <int N> __global__ void k(float* out) { for (int i = 0; i < N; ++i) out[i] = 0.f; }
void launch(float* out, int n) {
    switch (n) {
        case 4: k<4><<<1, 32>>>(out); break;
        case 8: k<8><<<1, 32>>>(out); break;
    }
}
//@ absent compile-time-specialization because only a type varies
template <typename T> __global__ void k(T* out) { if (out[0] > T(0)) out[1] = T(1); }
//@ absent compile-time-specialization because a size is only a size
template <int N> struct Vector { float items[N]; __device__ void clear() { for (int i = 0; i < N; ++i) items[i] = 0.f; } };
//@ present recomputation
__global__ void attention_backward(const float* q, const float* k, const float* lse, float* dq, int n) {
    for (int j = 0; j < n; ++j) {
        const float s = q[threadIdx.x] * k[j];
        const float p = expf(s - lse[threadIdx.x]);
        dq[threadIdx.x] += p * k[j];
    }
}
//@ absent recomputation
__global__ void softmax_forward(const float* in, float* out, float* lse) { out[0] = expf(in[0] - lse[0]); }
//@ present fused-epilogue
__global__ void linear(const float* x, const float* w, const float* bias, float* out, int n) {
    float acc = 0.f;
    for (int i = 0; i < n; ++i) acc += x[i] * w[i * 32 + threadIdx.x];
    acc += bias[threadIdx.x];
    out[threadIdx.x] = acc / (1.f + expf(-acc));
}
//@ absent fused-epilogue because the activation is the kernel
__global__ void silu(const float* x, float* out) { out[threadIdx.x] = x[threadIdx.x] / (1.f + expf(-x[threadIdx.x])); }
