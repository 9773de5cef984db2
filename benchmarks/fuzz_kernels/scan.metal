#include <metal_stdlib>
using namespace metal;

template <typename T, int N>
T exclusive_scan(T value, threadgroup T* shared, uint i) {
    shared[i] = value;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int offset = 1; offset < N; offset *= 2) {
        T other = int(i) >= offset ? shared[i - offset] : T(0);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        shared[i] += other;
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    return i > 0 ? shared[i - 1] : T(0);
}

template <typename T, int N>
[[kernel]] void scan(const device T* x [[buffer(0)]], device T* out [[buffer(1)]],
                     uint i [[thread_position_in_threadgroup]], uint g [[thread_position_in_grid]]) {
    threadgroup T shared[N];
    out[g] = exclusive_scan<T, N>(x[g], shared, i);
}

template [[host_name("scan_int_64")]] [[kernel]] void scan<int, 64>(
    const device int*, device int*, uint, uint);
template [[host_name("scan_float_64")]] [[kernel]] void scan<float, 64>(
    const device float*, device float*, uint, uint);
