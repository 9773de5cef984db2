/* Atomics, relaxed order as in Metal. Sites are recognised in the compiler's output as atomic accesses. */
#ifndef METALSIM_ATOMIC_H
#define METALSIM_ATOMIC_H

#include "simd.h"

namespace metal {

enum memory_order {
    memory_order_relaxed, memory_order_acquire, memory_order_release, memory_order_acq_rel, memory_order_seq_cst
};

template <class T> struct atomic {
    T value;
    static_assert(sizeof(T) == 4 || is_same_v<T, ulong> || is_same_v<T, bool>, "Metal has atomics of 32-bit types, ulong and bool");
};
template <class T> using _atomic = atomic<T>;
using atomic_int = atomic<int>;
using atomic_uint = atomic<uint>;
using atomic_float = atomic<float>;
using atomic_bool = atomic<bool>;
using atomic_ulong = atomic<ulong>;

}  // namespace metal

namespace msim {
template <class A> struct atomic_value {};
#define MSIM_SPACE(SPACE)                                                                        \
    template <class T> struct atomic_value<SPACE metal::atomic<T>> { using type = T; };          \
    template <class T> struct atomic_value<const SPACE metal::atomic<T>> { using type = T; };    \
    template <class T> struct atomic_value<volatile SPACE metal::atomic<T>> { using type = T; }; \
    template <class T> struct atomic_value<const volatile SPACE metal::atomic<T>> { using type = T; };
MSIM_SPACE(device) MSIM_SPACE(threadgroup)
#undef MSIM_SPACE
template <class A> using atomic_value_t = typename atomic_value<A>::type;
template <class T> struct same { using type = T; };
}  // namespace msim

namespace metal {

#define MSIM_ATOMIC template <class A, class T = msim::atomic_value_t<A>> MSIM_INLINE
#define MSIM_RELAXED(order)                                                                    \
    __attribute__((diagnose_if((order) != memory_order_relaxed,                                  \
                               "Metal's atomic functions take memory_order_relaxed only", "error")))
#define MSIM_OPERAND typename msim::same<T>::type operand

MSIM_ATOMIC T atomic_load_explicit(A *object, memory_order order) MSIM_RELAXED(order) {
    T result;
    __atomic_load((T *)&object->value, &result, __ATOMIC_RELAXED);
    return result;
}
MSIM_ATOMIC void atomic_store_explicit(A *object, MSIM_OPERAND, memory_order order) MSIM_RELAXED(order) {
    __atomic_store((T *)&object->value, &operand, __ATOMIC_RELAXED);
}
MSIM_ATOMIC T atomic_exchange_explicit(A *object, MSIM_OPERAND, memory_order order) MSIM_RELAXED(order) {
    T result;
    __atomic_exchange((T *)&object->value, &operand, &result, __ATOMIC_RELAXED);
    return result;
}
template <class A, class E, class T = msim::atomic_value_t<A>>
MSIM_INLINE bool atomic_compare_exchange_weak_explicit(A *object, E *expected, MSIM_OPERAND, memory_order order,
                                                       memory_order failed) MSIM_RELAXED(order) MSIM_RELAXED(failed) {
    T seen = *expected;
    bool done = __atomic_compare_exchange((T *)&object->value, &seen, &operand, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    *expected = seen;
    return done;
}
#define MSIM_FETCH(name)                                                                  \
    MSIM_ATOMIC T atomic_fetch_##name##_explicit(A *object, MSIM_OPERAND, memory_order order) MSIM_RELAXED(order) { \
        static_assert(!is_same_v<T, ulong>, "atomic_fetch_" #name "_explicit takes 32-bit atomics"); \
        return __atomic_fetch_##name((T *)&object->value, operand, __ATOMIC_RELAXED);     \
    }
MSIM_FETCH(add) MSIM_FETCH(sub) MSIM_FETCH(and) MSIM_FETCH(or) MSIM_FETCH(xor) MSIM_FETCH(min) MSIM_FETCH(max)
#undef MSIM_FETCH
/* Without a result, for ulong. */
#define MSIM_UPDATE(name)                                                                 \
    MSIM_ATOMIC void atomic_##name##_explicit(A *object, MSIM_OPERAND, memory_order order) MSIM_RELAXED(order) { \
        static_assert(is_same_v<T, ulong>, "atomic_" #name "_explicit takes an atomic_ulong"); \
        __atomic_fetch_##name((T *)&object->value, operand, __ATOMIC_RELAXED);            \
    }
MSIM_UPDATE(min) MSIM_UPDATE(max)
#undef MSIM_UPDATE
/* Threads of this simulator see each other's writes at once; the race check knows barriers only. */
MSIM_INLINE void atomic_thread_fence(mem_flags, memory_order, thread_scope = thread_scope_device) {}
#undef MSIM_RELAXED
#undef MSIM_OPERAND
#undef MSIM_ATOMIC

}  // namespace metal

#endif
