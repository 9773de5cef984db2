// Metal's atomics, all of relaxed order, on CUDA's functions.
namespace kx_metal {

enum memory_order { memory_order_relaxed, memory_order_acquire, memory_order_release, memory_order_acq_rel,
                    memory_order_seq_cst };

template <class T> struct atomic {
    T native;
};
using atomic_int = atomic<int>;
using atomic_uint = atomic<uint>;
using atomic_float = atomic<float>;

template <class A> KX_FN auto atomic_load_explicit(const A *object, memory_order) {
    return *const_cast<const volatile decltype(object->native) *>(&object->native);
}
template <class T, class X> KX_FN void atomic_store_explicit(atomic<T> *object, X value, memory_order) {
    *const_cast<volatile T *>(&object->native) = T(value);
}
#define KX_ATOMIC(NAME, FUNCTION)                                                                       \
    template <class T, class X> KX_FN T NAME(atomic<T> *object, X value, memory_order) {                \
        return FUNCTION(&object->native, T(value));                                                     \
    }
KX_ATOMIC(atomic_exchange_explicit, atomicExch)
KX_ATOMIC(atomic_fetch_add_explicit, atomicAdd)
KX_ATOMIC(atomic_fetch_min_explicit, atomicMin)
KX_ATOMIC(atomic_fetch_max_explicit, atomicMax)
KX_ATOMIC(atomic_fetch_and_explicit, atomicAnd)
KX_ATOMIC(atomic_fetch_or_explicit, atomicOr)
KX_ATOMIC(atomic_fetch_xor_explicit, atomicXor)
#undef KX_ATOMIC
template <class T, class X> KX_FN T atomic_fetch_sub_explicit(atomic<T> *object, X value, memory_order) {
    return atomicAdd(&object->native, T(-T(value)));
}
template <class T, class X>
KX_FN bool atomic_compare_exchange_weak_explicit(atomic<T> *object, T *expected, X desired, memory_order, memory_order) {
    T found;
    if constexpr (is_same_v<T, float>) {
        found = __int_as_float(atomicCAS(reinterpret_cast<int *>(&object->native), __float_as_int(*expected),
                                         __float_as_int(float(desired))));
    } else {
        found = atomicCAS(&object->native, *expected, T(desired));
    }
    bool swapped = as_type<uint>(found) == as_type<uint>(*expected);
    *expected = found;
    return swapped;
}
template <class... A> KX_FN void atomic_thread_fence(mem_flags, A...) { __threadfence(); }

}  // namespace kx_metal
