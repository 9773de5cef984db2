/* The runtime as one translation unit: the hooks are inlined into each other. */
#define _GNU_SOURCE
#include "switch.c"
#include "softfloat.c"
#include "events.c"
#include "births.c"
#include "fibers.c"
#include "memory.c"
#include "shadow.c"
#include "guards.c"
#include "counters.c"
#include "collectives.c"
#include "schedule.c"
#include "launch.c"
