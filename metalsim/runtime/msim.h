/* Shared by the runtime's files: launch description, threads, memory regions, events. */
#ifndef METALSIM_RUNTIME_H
#define METALSIM_RUNTIME_H

#include "../include/metalsim/abi.h"
#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Everything else is reached without a detour through the library's table of symbols. */
#define EXPORTED __attribute__((visibility("default")))

enum { SIMD_WIDTH = 32, MAX_THREADS = 1024, MAX_SIMDGROUPS = MAX_THREADS / SIMD_WIDTH };
enum { MAX_BUFFERS = 96, MAX_ARRAYS = 64 };
enum { RED_ZONE_BYTES = 65536, LINE_BYTES = 128 };

/* Roles of a buffer. */
enum { ROLE_INPUT, ROLE_OUTPUT, ROLE_INITIALIZED_OUTPUT, ROLE_CONSTANT };

/* Kinds of event; metalsim/build/abi.py has the same order. */
enum {
    EVENT_THREADGROUP_RACE, EVENT_DEVICE_RACE, EVENT_OUT_OF_RANGE, EVENT_UNINITIALIZED_READ,
    EVENT_READONLY_WRITE, EVENT_BARRIER_MISMATCH, EVENT_ENDED_BEFORE_BARRIER, EVENT_INACTIVE_LANE,
    EVENT_WILD_ACCESS, EVENT_ARRAY_INDEX, EVENT_UNWRITTEN_OUTPUT, EVENT_FAULT, EVENT_SIMD_BARRIER_MISMATCH,
    EVENT_TOO_MANY_ARRAYS, EVENT_NAN_BORN, EVENT_HANG, EVENT_UNINITIALIZED_VALUE
};

enum { ACCESS_LOAD, ACCESS_STORE, ACCESS_ATOMIC };
enum { NO_INDEX = 0xffffffffu };
enum { ARRAY_INDEX_BASE = 1000 }; /* event.region of threadgroup array k is ARRAY_INDEX_BASE + k */

typedef struct {
    void *data;
    uint64_t bytes;
    uint32_t element_bytes;
    uint32_t role;
} msim_buffer_spec;

typedef struct {
    uint32_t kind, access;
    uint32_t site, other_site;
    uint32_t region, bytes;
    int64_t offset;          /* bytes from the start of the region; signed */
    uint64_t count;
    uint32_t thread, other_thread;
    uint64_t group, other_group;
    uint32_t line, other_access;
    uint64_t region_bytes;
    uint32_t region_element_bytes, operand_count;
    double operands[3];      /* of the operation that made a NaN */
    char place[64];
    char text[80];
} msim_event;

typedef struct {
    uint64_t device_accesses, device_bytes, device_simd_accesses, device_lines;
    uint64_t threadgroup_accesses, threadgroup_bytes, threadgroup_simd_accesses, threadgroup_bank_cycles;
    uint64_t constant_accesses, constant_bytes, constant_simd_accesses;
    uint64_t threadgroup_bank_conflict_cycles;
} msim_site_counts;

typedef struct {
    uint64_t threads;
    uint64_t device_lines_read, device_lines_written, device_bytes_read, device_bytes_written;
    uint64_t barriers, simd_barriers;
    uint64_t shuffle_simd_ops, shuffle_lanes, broadcast_simd_ops;
    uint64_t reduction_simd_ops, prefix_simd_ops, vote_simd_ops;
    uint64_t threadgroup_bytes;
    uint64_t matrix_simd_ops, matrix_half_simd_ops, matrix_bfloat_simd_ops;
    uint64_t device_simd_accesses, device_lines;
    uint64_t device_segments, device_segment_lines_read, device_segment_lines_written;
    uint64_t threadgroup_bytes_moved, threadgroup_bytes_read, threadgroup_bytes_written;
    uint64_t threadgroup_simd_accesses, threadgroup_bank_cycles, threadgroup_bank_conflict_cycles;
} msim_group_counts;

typedef struct {
    const msim_buffer_spec *buffers;
    const uint64_t *groups;      /* linear indices of the threadgroups to run */
    uint64_t group_count;
    uint64_t seed;
    uint64_t stack_bytes;        /* per thread */
    uint32_t *block_counts;      /* [group_count][block_count][threads] or NULL */
    msim_site_counts *sites;     /* [site_count] or NULL */
    msim_group_counts *counts;   /* [group_count] or NULL */
    msim_event *events;          /* [event_capacity] */
    const uint32_t *site_buffers; /* [site_count]: buffer that a site certainly accesses, or NO_INDEX */
    uint64_t threadgroup_bytes;  /* out: sum of the threadgroup arrays reached, largest threadgroup */
    uint32_t buffer_count, site_count, block_count, event_capacity;
    uint32_t event_count;        /* out */
    uint32_t stopped;            /* out: the launch was ended early by a fault */
    uint32_t checked, counted;   /* what the hooks do */
    uint32_t grid[3], threadgroup[3];
    uint32_t threadgroup_lengths[MSIM_THREADGROUP_ARGUMENTS]; /* bytes, by index */
    uint32_t traced;             /* NaNs tell where they were born */
    uint32_t unwritten_byte;     /* what fills threadgroup memory that was not written; 0x100 for NaNs and random bits */
} msim_launch;

/* One remembered access to a shadow cell, small since a quarter of a checked run goes into reading them. Time 0
 * means none; the threadgroup follows from the time. */
enum { SITE_BITS = 21, UNKNOWN_SITE = (1 << SITE_BITS) - 1 };
typedef struct {
    uint32_t time;
    uint32_t thread : 10, atomic : 1, site : SITE_BITS;
} msim_record;

typedef struct {
    msim_record write, reads[2];
} msim_cell;

/* Who touched a line of device memory last: threadgroup and segment between synchronizations, both from 1. */
typedef struct {
    uint32_t group, segment;
} msim_line_stamp;

typedef struct {
    uintptr_t base;
    uint64_t bytes;
    uint32_t element_bytes, role, index;
    bool threadgroup;
    bool readable;           /* checked: a read inside it can be no fault */
    bool shadowed;           /* checked: threadgroup memory with a record of every element */
    uint32_t granule, granule_shift; /* bytes per shadow cell, a power of two */
    msim_cell *cells;
    uint64_t cell_bytes;     /* mapped */
    uint32_t poisoned_group; /* threadgroup arrays: group that last poisoned it */
    msim_line_stamp *line_read, *line_written; /* counted: per 128-byte line */
    char name[64];
} msim_region;

typedef enum { LANE_READY, LANE_COLLECTIVE, LANE_BARRIER, LANE_ENDED } msim_lane_state;

typedef struct {
    void *stack_pointer;
    uintptr_t stack_low, stack_high;
    msim_lane_state state;
    uint32_t thread, simdgroup, lane;
    uint32_t position[3];
    uintptr_t pc;
    msim_request *request;
    uint32_t flags, line;    /* of the barrier it waits at */
    const char *place;
} msim_thread;

typedef struct {
    msim_launch *launch;
    msim_thread *current;           /* running thread; NULL while the scheduler runs */
    msim_thread *lanes_end;         /* behind the last lane of the running SIMD-group */
    msim_thread threads[MAX_THREADS];
    uint32_t thread_count, simdgroup_count;
    void *scheduler_stack_pointer;
    uint64_t group;                 /* linear index of the running threadgroup */
    uint32_t group_stamp;           /* its ordinal among the run ones, from 1 */
    uint32_t group_start;           /* time at which it began */
    uint32_t *group_starts;         /* [group_count], of all that have begun */
    uint32_t group_position[3], group_size[3], groups_per_grid[3];
    uint32_t segment;               /* what a SIMD-group does between two barriers; counts from 1 over the launch */
    uint32_t counted_segment;       /* the last one that touched device memory */
    uint32_t time;                  /* advances with every barrier that orders memory */
    uint32_t barrier_time[2];       /* [0] device, [1] threadgroup memory */
    uint32_t simd_barrier_time[2][MAX_SIMDGROUPS];
    uintptr_t stacks_low, stacks_high;
    msim_region buffers[MAX_BUFFERS];
    uint32_t buffer_count;
    msim_region arrays[MAX_ARRAYS];
    uint32_t array_count;
    uint32_t last_site;             /* of a division or an index out of range */
    uint32_t mismatched_group;      /* stamp of the last threadgroup whose threads waited at different barriers */
    msim_region **site_region;      /* [site_count], last region of each site */
    msim_group_counts *counts;      /* of the running threadgroup, or a sink */
    sigjmp_buf escape;
    volatile bool running, overdue; /* overdue: the time is up, the next place that can be named ends the launch */
} msim_state;

extern msim_state msim;

/* fibers.c */
void msim_switch(void **save, void *load) __asm__("msim_switch");
bool msim_make_stacks(uint32_t count, uint64_t bytes);
void msim_drop_stacks(void);
void msim_resume(msim_thread *thread);
void msim_block_current(void);
_Noreturn void msim_stop(void);

/* schedule.c */
void msim_run_threadgroup(uint64_t ordinal);

/* collectives.c */
uint32_t msim_fire(msim_thread *lanes, uint32_t lane_count, uint32_t mask);

/* memory.c */
bool msim_map_buffers(void);
void msim_unmap_buffers(void);
void msim_copy_outputs(void);
void msim_report_unwritten(void);
msim_region *msim_mapped_region(uintptr_t address);
msim_region *msim_find_region(uintptr_t address, uint32_t bytes, uint32_t site, uint32_t access);
bool msim_in_stacks(uintptr_t address, uint32_t bytes, uint32_t site, uint32_t access);

/* shadow.c */
void msim_check_access(msim_region *region, uint64_t offset, uint32_t bytes, uint32_t site, uint32_t access);

/* counters.c */
bool msim_start_counters(void);
void msim_drop_counters(void);
void msim_count_access(msim_region *region, uintptr_t address, uint32_t bytes, uint32_t site, uint32_t access);
void msim_flush_counters(void);

/* births.c */
float msim_collective_birth(const msim_thread *lane, const char *operation, const float *operands, uint32_t count);
void msim_forget_births(void);

/* events.c */
msim_event *msim_add_event(uint32_t kind, uint32_t site, uint32_t region, uint32_t line, const char *place);
_Noreturn void msim_give_up(uint32_t site);
void msim_fill_poison(void *data, uint64_t bytes, uint64_t salt);

#endif
