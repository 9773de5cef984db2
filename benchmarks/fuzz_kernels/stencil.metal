#include <metal_stdlib>
using namespace metal;
#define HALO 2
#ifndef WIDTH
#define WIDTH 64
#endif

static inline float weight(int offset) {
    const float w[2 * HALO + 1] = {0.0625f, 0.25f, 0.375f, 0.25f, 0.0625f};
    return w[offset + HALO];
}

kernel void blur(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                 constant int2* range [[buffer(2)]], uint i [[thread_position_in_grid]],
                 uint t [[thread_position_in_threadgroup]], uint n [[threads_per_grid]]) {
    threadgroup float line[WIDTH + 2 * HALO];
    line[t + HALO] = x[i];
    if (t < HALO) {
        line[t] = i >= HALO ? x[i - HALO] : 0.f;
        line[WIDTH + HALO + t] = i + WIDTH < n ? x[i + WIDTH] : 0.f;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float sum = 0;
    for (int k = -HALO; k <= HALO; ++k) sum += weight(k) * line[int(t) + HALO + k];
    out[i] = isfinite(sum) ? sum : float(range[0].x);
}
