/* The Metal standard library, as far as it is there. */
#include "types.h"
#include "vec.h"
#include "math.h"
#include "columns.h"
#include "simd.h"
#include "matrix.h"
#include "atomic.h"
#include "unsupported.h"
