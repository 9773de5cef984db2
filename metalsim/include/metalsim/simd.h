/* SIMD-group and quad-group functions, barriers. The runtime performs them when the lanes arrived. */
#ifndef METALSIM_SIMD_H
#define METALSIM_SIMD_H

#include "vec.h"

namespace msim {

template <class T> struct type_code { static constexpr int value = -1; };
#define MSIM_CODE(T, CODE) template <> struct type_code<T> { static constexpr int value = CODE; };
MSIM_CODE(float, MSIM_F32) MSIM_CODE(half, MSIM_F16) MSIM_CODE(bfloat, MSIM_BF16)
MSIM_CODE(char, MSIM_I8) MSIM_CODE(signed char, MSIM_I8) MSIM_CODE(uchar, MSIM_U8) MSIM_CODE(short, MSIM_I16)
MSIM_CODE(ushort, MSIM_U16) MSIM_CODE(int, MSIM_I32) MSIM_CODE(uint, MSIM_U32) MSIM_CODE(long, MSIM_I64)
MSIM_CODE(ulong, MSIM_U64) MSIM_CODE(bool, MSIM_U8)
#undef MSIM_CODE

template <class T> struct shape { using element = T; static constexpr unsigned count = 1; };
template <class T, int N> struct shape<metal::vec<T, N>> { using element = T; static constexpr unsigned count = N; };

template <class T>
MSIM_INLINE T collect(T value, unsigned op, unsigned width, unsigned lane, const T *fill, location here) {
    constexpr int code = type_code<typename shape<T>::element>::value;
    static_assert(code >= 0, "SIMD-group functions take numbers and vectors of numbers");
    msim_request request = {&value, fill, op, (unsigned)code, shape<T>::count, width, lane, here.line, here.place};
    msim_collective(&request);
    return value;
}

/* A word from the lane whose number differs in the bits of the mask; in plain mode several are exchanged at once. */
template <class T> MSIM_INLINE T exchange(T value, unsigned mask, location here) {
#ifdef MSIM_PLAIN
    if constexpr (shape<T>::count == 1 && sizeof(T) == 4) {
        unsigned bits = __builtin_bit_cast(unsigned, value);
        return __builtin_bit_cast(T, msim_exchange(bits, mask, here.line, here.place));
    }
#endif
    return collect<T>(value, MSIM_SHUFFLE_XOR, 32, mask, nullptr, here);
}

MSIM_INLINE unsigned long vote(unsigned op, unsigned width, bool yes, location here) {
    msim_request request = {nullptr, nullptr, op, MSIM_U32, 1, width, yes, here.line, here.place};
    return msim_vote(&request);
}

}  // namespace msim

namespace metal {

enum class mem_flags : uint {
    mem_none = MSIM_MEM_NONE, mem_device = MSIM_MEM_DEVICE, mem_threadgroup = MSIM_MEM_THREADGROUP,
    mem_texture = 4, mem_threadgroup_imageblock = 8, mem_object_data = 16
};
MSIM_INLINE constexpr mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(uint(a) | uint(b)); }
MSIM_INLINE constexpr mem_flags operator&(mem_flags a, mem_flags b) { return mem_flags(uint(a) & uint(b)); }

enum thread_scope { thread_scope_thread, thread_scope_simdgroup, thread_scope_threadgroup, thread_scope_device };

MSIM_INLINE void threadgroup_barrier(mem_flags flags, MSIM_HERE) { msim_barrier((uint)flags, here.line, here.place); }
MSIM_INLINE void threadgroup_barrier(mem_flags flags, thread_scope, MSIM_HERE) {
    msim_barrier((uint)flags, here.line, here.place);
}
MSIM_INLINE void simdgroup_barrier(mem_flags flags, MSIM_HERE) {
#ifdef MSIM_PLAIN
    if (flags == mem_flags::mem_none) return; // it orders nothing that a kernel without races could see
#endif
    msim_request request = {nullptr, nullptr, MSIM_SIMD_BARRIER, MSIM_U32, 1, 32, (uint)flags, here.line, here.place};
    msim_collective(&request);
}

class simd_vote {
    unsigned long bits;
public:
    using vote_t = unsigned long;
    explicit MSIM_INLINE constexpr simd_vote(vote_t v = 0) : bits(v) {}
    explicit MSIM_INLINE constexpr operator vote_t() const { return bits; }
    MSIM_INLINE constexpr bool all() const { return (bits & 0xffffffff) == 0xffffffff; }
    MSIM_INLINE constexpr bool any() const { return bits != 0; }
};
class quad_vote {
    uint bits;
public:
    using vote_t = uint;
    explicit MSIM_INLINE constexpr quad_vote(vote_t v = 0) : bits(v) {}
    explicit MSIM_INLINE constexpr operator vote_t() const { return bits; }
    MSIM_INLINE constexpr bool all() const { return (bits & 15) == 15; }
    MSIM_INLINE constexpr bool any() const { return bits != 0; }
};

#define MSIM_REDUCTION(suffix, OP)                                                              \
    template <class A, class T = msim::plain_t<A>> MSIM_INLINE T simd_##suffix(const A &a, MSIM_HERE) { \
        static_assert(sizeof(typename msim::shape<T>::element) < 8, "simd_" #suffix " takes no 64-bit values"); \
        return msim::collect<T>(T(a), OP, 32, 0, nullptr, here);               \
    }
#define MSIM_BOTH(suffix, OP)                                                                   \
    MSIM_REDUCTION(suffix, OP)                                                                  \
    template <class A, class T = msim::plain_t<A>> MSIM_INLINE T quad_##suffix(const A &a, MSIM_HERE) { \
        return msim::collect<T>(T(a), OP, 4, 0, nullptr, here);                \
    }
MSIM_BOTH(sum, MSIM_SUM) MSIM_BOTH(product, MSIM_PRODUCT) MSIM_BOTH(min, MSIM_MIN) MSIM_BOTH(max, MSIM_MAX)
MSIM_BOTH(and, MSIM_AND) MSIM_BOTH(or, MSIM_OR) MSIM_BOTH(xor, MSIM_XOR)
MSIM_BOTH(prefix_inclusive_sum, MSIM_PREFIX_INCLUSIVE_SUM)
MSIM_BOTH(prefix_exclusive_sum, MSIM_PREFIX_EXCLUSIVE_SUM)
MSIM_BOTH(prefix_inclusive_product, MSIM_PREFIX_INCLUSIVE_PRODUCT)
MSIM_BOTH(prefix_exclusive_product, MSIM_PREFIX_EXCLUSIVE_PRODUCT)

#define MSIM_SHUFFLES(suffix, OP)                                                               \
    template <class A, class T = msim::plain_t<A>>                                              \
    MSIM_INLINE T simd_##suffix(const A &a, ushort lane, MSIM_HERE) {                           \
        return msim::collect<T>(T(a), OP, 32, lane, nullptr, here);            \
    }                                                                                           \
    template <class A, class T = msim::plain_t<A>>                                              \
    MSIM_INLINE T quad_##suffix(const A &a, ushort lane, MSIM_HERE) {                           \
        return msim::collect<T>(T(a), OP, 4, lane, nullptr, here);             \
    }
MSIM_SHUFFLES(shuffle, MSIM_SHUFFLE) MSIM_SHUFFLES(shuffle_up, MSIM_SHUFFLE_UP)
MSIM_SHUFFLES(shuffle_down, MSIM_SHUFFLE_DOWN)
MSIM_SHUFFLES(shuffle_rotate_up, MSIM_ROTATE_UP) MSIM_SHUFFLES(shuffle_rotate_down, MSIM_ROTATE_DOWN)
MSIM_SHUFFLES(broadcast, MSIM_BROADCAST)

template <class A, class T = msim::plain_t<A>> MSIM_INLINE T simd_shuffle_xor(const A &a, ushort mask, MSIM_HERE) {
    return msim::exchange<T>(T(a), mask, here);
}
template <class A, class T = msim::plain_t<A>> MSIM_INLINE T quad_shuffle_xor(const A &a, ushort mask, MSIM_HERE) {
    return msim::collect<T>(T(a), MSIM_SHUFFLE_XOR, 4, mask, nullptr, here);
}

#define MSIM_FILL(function, OP, WIDTH)                                                          \
    template <class A, class B, class T = msim::plain_t<A>>                                     \
    MSIM_INLINE T function(const A &a, const B &b, ushort delta, MSIM_HERE) {                   \
        T fill(b);                                                                              \
        return msim::collect<T>(T(a), OP, WIDTH, delta, &fill, here);                           \
    }                                                                                           \
    template <class A, class B, class T = msim::plain_t<A>>                                     \
    MSIM_INLINE T function(const A &a, const B &b, ushort delta, ushort modulo, MSIM_HERE) {    \
        T fill(b);                                                                              \
        return msim::collect<T>(T(a), OP, modulo, delta, &fill, here);                          \
    }
#define MSIM_FILLS(suffix, OP) MSIM_FILL(simd_##suffix, OP, 32) MSIM_FILL(quad_##suffix, OP, 4)
MSIM_FILLS(shuffle_and_fill_up, MSIM_FILL_UP) MSIM_FILLS(shuffle_and_fill_down, MSIM_FILL_DOWN)

template <class A, class T = msim::plain_t<A>> MSIM_INLINE T simd_broadcast_first(const A &a, MSIM_HERE) {
    return msim::collect<T>(T(a), MSIM_BROADCAST_FIRST, 32, 0, nullptr, here);
}
template <class A, class T = msim::plain_t<A>> MSIM_INLINE T quad_broadcast_first(const A &a, MSIM_HERE) {
    return msim::collect<T>(T(a), MSIM_BROADCAST_FIRST, 4, 0, nullptr, here);
}
MSIM_INLINE simd_vote simd_ballot(bool yes, MSIM_HERE) { return simd_vote(msim::vote(MSIM_BALLOT, 32, yes, here)); }
MSIM_INLINE simd_vote simd_active_threads_mask(MSIM_HERE) { return simd_vote(msim::vote(MSIM_ACTIVE_MASK, 32, true, here)); }
MSIM_INLINE bool simd_all(bool yes, MSIM_HERE) { return msim::vote(MSIM_ALL, 32, yes, here); }
MSIM_INLINE bool simd_any(bool yes, MSIM_HERE) { return msim::vote(MSIM_ANY, 32, yes, here); }
MSIM_INLINE bool simd_is_first(MSIM_HERE) { return msim::vote(MSIM_IS_FIRST, 32, true, here); }
MSIM_INLINE quad_vote quad_ballot(bool yes, MSIM_HERE) { return quad_vote((uint)msim::vote(MSIM_BALLOT, 4, yes, here)); }
MSIM_INLINE quad_vote quad_active_threads_mask(MSIM_HERE) {
    return quad_vote((uint)msim::vote(MSIM_ACTIVE_MASK, 4, true, here));
}
MSIM_INLINE bool quad_all(bool yes, MSIM_HERE) { return msim::vote(MSIM_ALL, 4, yes, here); }
MSIM_INLINE bool quad_any(bool yes, MSIM_HERE) { return msim::vote(MSIM_ANY, 4, yes, here); }
MSIM_INLINE bool quad_is_first(MSIM_HERE) { return msim::vote(MSIM_IS_FIRST, 4, true, here); }

/* Apple's own trait, which kernels use to tell what a reduction of a SIMD-group takes. */
template <class T>
struct __is_valid_simdgroup_type
    : bool_constant<is_arithmetic_v<T> && !is_same_v<remove_cv_t<T>, bool> && sizeof(T) <= 4> {};
template <class T, int N> struct __is_valid_simdgroup_type<vec<T, N>> : __is_valid_simdgroup_type<T> {};

}  // namespace metal

#endif
