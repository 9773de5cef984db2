/* Atomics, relaxed order as in Metal. Sites are recognised in the compiler's output as atomic accesses. */
#ifndef METALSIM_ATOMIC_H
#define METALSIM_ATOMIC_H

#include "types.h"

namespace metal {

enum memory_order { memory_order_relaxed = 0 };
enum thread_scope { thread_scope_thread, thread_scope_simdgroup, thread_scope_threadgroup, thread_scope_device };

template <class T> struct atomic {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8 || is_same_v<T, bool>, "Metal has atomics of 32-bit types, ulong and bool");
    T value;
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
#define MSIM_OPERAND typename msim::same<T>::type operand

MSIM_ATOMIC T atomic_load_explicit(A *object, memory_order) {
    T result;
    __atomic_load((T *)&object->value, &result, __ATOMIC_RELAXED);
    return result;
}
MSIM_ATOMIC void atomic_store_explicit(A *object, MSIM_OPERAND, memory_order) {
    __atomic_store((T *)&object->value, &operand, __ATOMIC_RELAXED);
}
MSIM_ATOMIC T atomic_exchange_explicit(A *object, MSIM_OPERAND, memory_order) {
    T result;
    __atomic_exchange((T *)&object->value, &operand, &result, __ATOMIC_RELAXED);
    return result;
}
template <class A, class E, class T = msim::atomic_value_t<A>>
MSIM_INLINE bool atomic_compare_exchange_weak_explicit(A *object, E *expected, MSIM_OPERAND, memory_order, memory_order) {
    T seen = *expected;
    bool done = __atomic_compare_exchange((T *)&object->value, &seen, &operand, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    *expected = seen;
    return done;
}
#define MSIM_FETCH(name)                                                                  \
    MSIM_ATOMIC T atomic_fetch_##name##_explicit(A *object, MSIM_OPERAND, memory_order) { \
        return __atomic_fetch_##name((T *)&object->value, operand, __ATOMIC_RELAXED);     \
    }
MSIM_FETCH(add) MSIM_FETCH(sub) MSIM_FETCH(and) MSIM_FETCH(or) MSIM_FETCH(xor) MSIM_FETCH(min) MSIM_FETCH(max)
#undef MSIM_FETCH
#undef MSIM_OPERAND
#undef MSIM_ATOMIC

}  // namespace metal

#endif
