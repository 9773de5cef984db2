#include <metal_stdlib>
using namespace metal;

enum class Order : uint { ascending, descending };

template <Order order, typename T>
inline bool before(T a, T b) {
    if constexpr (order == Order::ascending) {
        return a < b;
    }
    return b < a;
}

kernel void sort_small(device short* keys [[buffer(0)]], device ulong* hashes [[buffer(1)]],
                       uint t [[thread_position_in_threadgroup]], uint g [[threadgroup_position_in_grid]]) {
    threadgroup short shared[64];
    thread ulong state[2] = {0x9e3779b97f4a7c15ul, ulong(t)};
    shared[t & 63] = keys[g * 64 + (t & 63)];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint k = 2; k <= 64; k <<= 1) {
        for (uint j = k >> 1; j > 0; j >>= 1) {
            uint other = t ^ j;
            if (other > t && other < 64) {
                bool up = (t & k) == 0;
                short a = shared[t], b = shared[other];
                if (before<Order::descending>(a, b) == up) {
                    shared[t] = b;
                    shared[other] = a;
                }
            }
            threadgroup_barrier(mem_flags::mem_threadgroup);
        }
    }
    state[t % 2] ^= state[1 - t % 2] << 13;
    state[0] = mulhi(state[0], state[1]) + reverse_bits(uint(state[1]));
    keys[g * 64 + (t & 63)] = shared[t & 63];
    hashes[g * 64 + (t & 63)] = extract_bits(state[0], 3, 17);
}
