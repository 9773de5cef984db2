// SIMD-group and quad-group functions on warps, and barriers.
//
// KX_LANES says which lanes take part where the text does not say it itself: `kx_whole`, all 32 lanes of every
// SIMD-group, or `kx_active`, those that arrive. KX_MATRIX_LANES renames the lanes of a warp such that Metal's fragment
// of an 8x8 matrix is that of mma.sync: a kernel can't tell which thread of its SIMD-group it runs on.
namespace kx_metal {

#if KX_MATRIX_LANES
// Lane bits from the highest: CUDA's (row 2, row 1, row 0, column 1, column 0), Metal's (row 2, column 1, row 1, row 0,
// column 0).
KX_FN constexpr uint kx_metal_lane(uint lane) { return (lane & 17) | (lane & 2) << 2 | (lane & 12) >> 1; }
KX_FN constexpr uint kx_device_lane(uint lane) { return (lane & 17) | (lane & 8) >> 2 | (lane & 6) << 1; }
#else
KX_FN constexpr uint kx_metal_lane(uint lane) { return lane; }
KX_FN constexpr uint kx_device_lane(uint lane) { return lane; }
#endif

KX_FN uint kx_here() {
    uint lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}
KX_FN uint kx_lane() { return kx_metal_lane(kx_here()); }
// The flattened index of a thread in its threadgroup, from CUDA's.
KX_FN uint kx_renamed(uint flat) { return (flat & ~31u) | kx_metal_lane(flat & 31u); }

struct kx_whole {
    static constexpr bool all = true;
    static KX_FN uint mask() { return 0xffffffffu; }
};
struct kx_active {
    static constexpr bool all = false;
    static KX_FN uint mask() { return __activemask(); }
};

template <class T, class F> KX_FN T kx_by_words(const T &value, F move) {
    constexpr int words = (sizeof(T) + 3) / 4;
    uint parts[words] = {};
    memcpy(parts, &value, sizeof(T));
    KX_UNROLL for (int i = 0; i < words; i++) parts[i] = move(parts[i]);
    T result;
    memcpy(&result, parts, sizeof(T));
    return result;
}
template <class T> KX_FN T kx_from(uint mask, const T &value, uint metal_lane) {
    uint source = kx_device_lane(metal_lane & 31u);
    return kx_by_words(value, [=](uint word) { return __shfl_sync(mask, word, source); });
}

template <class Lanes = KX_LANES, class T> KX_FN T simd_shuffle(T value, ushort lane) {
    return kx_from(Lanes::mask(), value, lane);
}
template <class Lanes = KX_LANES, class T> KX_FN T simd_broadcast(T value, ushort lane) {
    return kx_from(Lanes::mask(), value, lane);
}
template <class Lanes = KX_LANES, class T> KX_FN T simd_shuffle_xor(T value, ushort mask) {
    uint device_mask = kx_device_lane(mask & 31u), lanes = Lanes::mask();
    return kx_by_words(value, [=](uint word) { return __shfl_xor_sync(lanes, word, device_mask); });
}
template <class Lanes = KX_LANES, class T> KX_FN T simd_shuffle_up(T value, ushort delta) {
#if KX_MATRIX_LANES
    uint lane = kx_lane();
    return kx_from(Lanes::mask(), value, lane >= delta ? lane - delta : lane);
#else
    uint lanes = Lanes::mask();
    return kx_by_words(value, [=](uint word) { return __shfl_up_sync(lanes, word, delta); });
#endif
}
template <class Lanes = KX_LANES, class T> KX_FN T simd_shuffle_down(T value, ushort delta) {
#if KX_MATRIX_LANES
    uint lane = kx_lane();
    return kx_from(Lanes::mask(), value, lane + delta < 32 ? lane + delta : lane);
#else
    uint lanes = Lanes::mask();
    return kx_by_words(value, [=](uint word) { return __shfl_down_sync(lanes, word, delta); });
#endif
}
template <class Lanes = KX_LANES, class T> KX_FN T simd_shuffle_rotate_up(T value, ushort delta) {
    return kx_from(Lanes::mask(), value, kx_lane() - delta);
}
template <class Lanes = KX_LANES, class T> KX_FN T simd_shuffle_rotate_down(T value, ushort delta) {
    return kx_from(Lanes::mask(), value, kx_lane() + delta);
}
template <class Lanes = KX_LANES, class T, class F>
KX_FN T simd_shuffle_and_fill_up(T value, F fill, ushort delta, ushort modulo = 32) {
    uint lane = kx_lane(), mask = Lanes::mask();
    T moved = kx_from(mask, value, lane - delta), filler = kx_from(mask, T(fill), lane + modulo - delta);
    return lane % modulo >= delta ? moved : filler;
}
template <class Lanes = KX_LANES, class T, class F>
KX_FN T simd_shuffle_and_fill_down(T value, F fill, ushort delta, ushort modulo = 32) {
    uint lane = kx_lane(), mask = Lanes::mask();
    T moved = kx_from(mask, value, lane + delta), filler = kx_from(mask, T(fill), lane + delta - modulo);
    return lane % modulo + delta < modulo ? moved : filler;
}

KX_FN uint kx_metal_mask(uint device_mask) {
#if KX_MATRIX_LANES
    uint result = 0;
    KX_UNROLL for (uint lane = 0; lane < 32; lane++) result |= (device_mask >> kx_device_lane(lane) & 1u) << lane;
    return result;
#else
    return device_mask;
#endif
}
// Reduce or scan what arrives, lane after lane; `add` combines earlier and later.
template <class T, class F> KX_FN T kx_in_turn(uint mask, const T &value, uint below, F add) {
    uint rest = kx_metal_mask(mask) & below, all = kx_metal_mask(mask);
    T total = value;
    bool any = false;
    for (; all != 0; all &= all - 1) {
        uint lane = __ffs(all) - 1;
        T other = kx_from(mask, value, lane);
        if (rest >> lane & 1u) {
            total = any ? add(total, other) : other;
            any = true;
        }
    }
    return total;
}
template <class Lanes, class T, class F> KX_FN T kx_reduce(const T &value, F add) {
    uint mask = Lanes::mask();
    if (Lanes::all || mask == 0xffffffffu) {
        T total = value;
        KX_UNROLL for (uint distance = 16; distance > 0; distance /= 2) {
            total = add(total, kx_by_words(total, [=](uint w) { return __shfl_xor_sync(0xffffffffu, w, distance); }));
        }
        return total;
    }
    return kx_in_turn(mask, value, 0xffffffffu, add);
}
template <class Lanes, class T, class F> KX_FN T kx_scan(const T &value, F add) {
    uint mask = Lanes::mask(), lane = kx_lane();
    if (Lanes::all || mask == 0xffffffffu) {
        T total = value;
        KX_UNROLL for (uint distance = 1; distance < 32; distance *= 2) {
            T below = simd_shuffle_up<kx_whole>(total, distance);
            total = lane >= distance ? add(below, total) : total;
        }
        return total;
    }
    return kx_in_turn(mask, value, (2u << lane) - 1u, add);
}
template <class Lanes, class T, class F> KX_FN T kx_exclusive(const T &value, const T &identity, F add) {
    uint mask = Lanes::mask(), lane = kx_lane(), before = kx_metal_mask(mask) & ((1u << lane) - 1u);
    T inclusive = kx_scan<Lanes>(value, add);
    T below = kx_from(mask, inclusive, before ? 31 - __clz(before) : lane);
    return before ? below : identity;
}

struct kx_sum {
    template <class T> KX_FN T operator()(const T &a, const T &b) const { return T(a + b); }
};
struct kx_product {
    template <class T> KX_FN T operator()(const T &a, const T &b) const { return T(a * b); }
};
struct kx_min {
    template <class T> KX_FN T operator()(const T &a, const T &b) const { return min(a, b); }
};
struct kx_max {
    template <class T> KX_FN T operator()(const T &a, const T &b) const { return max(a, b); }
};
struct kx_and {
    template <class T> KX_FN T operator()(const T &a, const T &b) const { return T(a & b); }
};
struct kx_or {
    template <class T> KX_FN T operator()(const T &a, const T &b) const { return T(a | b); }
};
struct kx_xor {
    template <class T> KX_FN T operator()(const T &a, const T &b) const { return T(a ^ b); }
};

// A quad-group's lanes are four neighbours of Metal's numbering.
template <class Lanes, class T, class F> KX_FN T kx_reduce_quad(const T &value, F add) {
    uint mask = Lanes::mask(), first = kx_lane() & ~3u;
    return kx_in_turn(mask, value, 15u << first, add);
}

#define KX_REDUCTION(NAME)                                                                                     \
    template <class Lanes = KX_LANES, class T> KX_FN T simd_##NAME(T value) {                                  \
        return kx_reduce<Lanes>(value, kx_##NAME());                                                           \
    }                                                                                                          \
    template <class Lanes = KX_LANES, class T> KX_FN T quad_##NAME(T value) {                                  \
        return kx_reduce_quad<Lanes>(value, kx_##NAME());                                                      \
    }
KX_REDUCTION(sum) KX_REDUCTION(product) KX_REDUCTION(min) KX_REDUCTION(max)
KX_REDUCTION(and) KX_REDUCTION(or) KX_REDUCTION(xor)
#undef KX_REDUCTION

#define KX_PREFIX(NAME, IDENTITY)                                                                              \
    template <class Lanes = KX_LANES, class T> KX_FN T simd_prefix_inclusive_##NAME(T value) {                 \
        return kx_scan<Lanes>(value, kx_##NAME());                                                             \
    }                                                                                                          \
    template <class Lanes = KX_LANES, class T> KX_FN T simd_prefix_exclusive_##NAME(T value) {                 \
        return kx_exclusive<Lanes>(value, T(IDENTITY), kx_##NAME());                                           \
    }                                                                                                          \
    template <class Lanes = KX_LANES, class T> KX_FN T quad_prefix_inclusive_##NAME(T value) {                 \
        uint lane = kx_lane(), first = lane & ~3u;                                                             \
        return kx_in_turn(Lanes::mask(), value, (15u << first) & ((2u << lane) - 1u), kx_##NAME());            \
    }                                                                                                          \
    template <class Lanes = KX_LANES, class T> KX_FN T quad_prefix_exclusive_##NAME(T value) {                 \
        uint lane = kx_lane(), first = lane & ~3u;                                                             \
        T total = kx_in_turn(Lanes::mask(), value, (15u << first) & ((1u << lane) - 1u), kx_##NAME());         \
        return lane == first ? T(IDENTITY) : total;                                                            \
    }
KX_PREFIX(sum, 0) KX_PREFIX(product, 1)
#undef KX_PREFIX

template <class Lanes = KX_LANES, class T> KX_FN T simd_broadcast_first(T value) {
    uint mask = Lanes::mask();
    return kx_from(mask, value, __ffs(kx_metal_mask(mask)) - 1);
}

template <class Bits, uint ALL> class kx_vote {
    Bits bits;

public:
    using vote_t = Bits;
    explicit KX_FN kx_vote(Bits value = 0) : bits(value) {}
    explicit KX_FN operator Bits() const { return bits; }
    KX_FN bool all() const { return (bits & ALL) == ALL; }
    KX_FN bool any() const { return bits != 0; }
};
using simd_vote = kx_vote<ulong, 0xffffffffu>;
using quad_vote = kx_vote<uint, 15u>;

template <class Lanes = KX_LANES> KX_FN simd_vote simd_ballot(bool yes) {
    return simd_vote(kx_metal_mask(__ballot_sync(Lanes::mask(), yes)));
}
template <class Lanes = KX_LANES> KX_FN simd_vote simd_active_threads_mask() {
    return simd_vote(kx_metal_mask(Lanes::mask()));
}
template <class Lanes = KX_LANES> KX_FN bool simd_all(bool yes) { return __all_sync(Lanes::mask(), yes); }
template <class Lanes = KX_LANES> KX_FN bool simd_any(bool yes) { return __any_sync(Lanes::mask(), yes); }
template <class Lanes = KX_LANES> KX_FN bool simd_is_first() {
    return (kx_metal_mask(Lanes::mask()) & ((1u << kx_lane()) - 1u)) == 0;
}
template <class Lanes = KX_LANES> KX_FN bool simd_is_helper_thread() { return false; }

template <class Lanes = KX_LANES, class T> KX_FN T quad_shuffle(T value, ushort lane) {
    return kx_from(Lanes::mask(), value, (kx_lane() & ~3u) | (lane & 3u));
}
template <class Lanes = KX_LANES, class T> KX_FN T quad_broadcast(T value, ushort lane) {
    return quad_shuffle<Lanes>(value, lane);
}
template <class Lanes = KX_LANES, class T> KX_FN T quad_shuffle_xor(T value, ushort mask) {
    return kx_from(Lanes::mask(), value, kx_lane() ^ (mask & 3u));
}
template <class Lanes = KX_LANES, class T> KX_FN T quad_shuffle_up(T value, ushort delta) {
    uint lane = kx_lane();
    return kx_from(Lanes::mask(), value, (lane & 3u) >= delta ? lane - delta : lane);
}
template <class Lanes = KX_LANES, class T> KX_FN T quad_shuffle_down(T value, ushort delta) {
    uint lane = kx_lane();
    return kx_from(Lanes::mask(), value, (lane & 3u) + delta < 4 ? lane + delta : lane);
}
template <class Lanes = KX_LANES> KX_FN quad_vote quad_ballot(bool yes) {
    return quad_vote(kx_metal_mask(__ballot_sync(Lanes::mask(), yes)) >> (kx_lane() & ~3u) & 15u);
}
template <class Lanes = KX_LANES> KX_FN bool quad_any(bool yes) { return quad_ballot<Lanes>(yes).any(); }
template <class Lanes = KX_LANES> KX_FN bool quad_all(bool yes) { return quad_ballot<Lanes>(!yes).any() == false; }

enum class mem_flags : uint { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
KX_FN constexpr mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(uint(a) | uint(b)); }
enum thread_scope { thread_scope_thread, thread_scope_simdgroup, thread_scope_threadgroup, thread_scope_device };

KX_FN void threadgroup_barrier(mem_flags) { __syncthreads(); }
KX_FN void threadgroup_barrier(mem_flags, thread_scope) { __syncthreads(); }
template <class Lanes = KX_LANES> KX_FN void simdgroup_barrier(mem_flags) { __syncwarp(Lanes::mask()); }

}  // namespace kx_metal
