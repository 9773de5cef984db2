/* Arguments for the kernel functions of whole files: their types come from the function itself. */
#ifndef METALSIM_ENTRY_H
#define METALSIM_ENTRY_H

#include "metal.h"

#define is_function_constant_defined(name) msim_defined_##name

namespace metal {

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

/* Not checked: shipped kernels are compiled without assertions. */
MSIM_INLINE constexpr void assert(bool) {}

}  // namespace metal

namespace msim {

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
