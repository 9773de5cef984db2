/* Arguments for the kernel functions of whole files: their types come from the function itself. */
#ifndef METALSIM_ENTRY_H
#define METALSIM_ENTRY_H

#include "metal.h"

#define is_function_constant_defined(name) msim_defined_##name

namespace metal {

template <class T, size_t N> struct array {
    T __elems[N];
    static constexpr MSIM_INLINE size_t size() { return N; }
    MSIM_INLINE T &operator[](size_t i) { return __elems[i]; }
    MSIM_INLINE const T &operator[](size_t i) const { return __elems[i]; }
};

template <class... B> struct disjunction : bool_constant<(bool(B::value) || ...)> {};
template <class... B> struct conjunction : bool_constant<(bool(B::value) && ...)> {};
template <class B> struct negation : bool_constant<!bool(B::value)> {};
template <class... B> using _disjunction = disjunction<B...>;
template <class... B> using _conjunction = conjunction<B...>;
template <class B> using _negation = negation<B>;

/* The promise that all lanes hold the same value is not checked. */
template <class T> using uniform = T;
template <class T> MSIM_INLINE constexpr T make_uniform(T value) { return value; }

/* Messages go nowhere. */
struct os_log {
    constexpr os_log(const char *, const char *) {}
#define MSIM_LOG(name) template <class... A> MSIM_INLINE void name(const char *, A...) const {}
    MSIM_LOG(log) MSIM_LOG(log_debug) MSIM_LOG(log_info) MSIM_LOG(log_error) MSIM_LOG(log_fault)
#undef MSIM_LOG
};

}  // namespace metal

namespace msim {

/* A copy in thread memory of what lies anywhere. */
template <class T> MSIM_INLINE constexpr value_t<T> value_of(T &&value) { return value; }

/* static_cast, which clang refuses between half and bfloat. */
template <class T, class U> MSIM_INLINE constexpr T static_convert(U &&value) {
    using From = value_t<U>;
    if constexpr ((metal::is_same_v<T, half> && metal::is_same_v<From, bfloat>) ||
                  (metal::is_same_v<T, bfloat> && metal::is_same_v<From, half>))
        return (T)(float)value;
    else
        return static_cast<T>(static_cast<U &&>(value));
}

template <int I, class P, class... R> struct pick : pick<I - 1, R...> {};
template <class P, class... R> struct pick<0, P, R...> { using type = P; };
template <class F> struct parameters;
template <class... P> struct parameters<void (*)(P...)> {
    template <int I> using type = typename pick<I, P...>::type;
};

template <class P> struct buffer_argument;
template <class T> struct buffer_argument<T *> {
    static MSIM_INLINE T *at(void *address) { return (T *)address; }
};
template <class T> struct buffer_argument<T &> {
    static MSIM_INLINE T &at(void *address) { return *(T *)address; }
};
template <class P> struct pointed;
template <class T> struct pointed<T *> { static constexpr unsigned bytes = scalar_of<value_t<T>>::bytes; };
template <class T> struct pointed<T &> : pointed<T *> {};

template <class P, unsigned number> MSIM_INLINE P attribute() {
    if constexpr (is_vector<P>::value) {
        P result;
        for (int i = 0; i < P::width; i++) result.element[i] = (typename P::value_type)msim_attribute(number + i);
        return result;
    } else {
        return (P)msim_attribute(number);
    }
}

}  // namespace msim

#endif
