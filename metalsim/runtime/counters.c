/* Memory statistics as the hardware would see them: accesses of a SIMD-group, not of a lane.
 *
 * Lanes run one after another, so their accesses are matched by site and by how often the lane has
 * executed that site since the SIMD-group was last together (a barrier, or a collective of all lanes).
 */
#include "msim.h"
#include <stdlib.h>

enum { BANKS = 32, BANK_BYTES = 4 };
enum { MAX_LINES = 8 * SIMD_WIDTH }; /* of one access: lanes copy structures of up to 1 KiB at once */

typedef struct {
    uint32_t lanes, bytes;
    uintptr_t address[SIMD_WIDTH];
    msim_region *region;
} simd_access;

typedef struct {
    uint32_t executed[SIMD_WIDTH]; /* per lane, since the last flush */
    uint32_t count, capacity;
    simd_access *accesses;
} site_log;

static site_log *logs;
static uint32_t *touched, touched_count;

bool msim_start_counters(void) {
    logs = calloc(msim.launch->site_count + 1, sizeof *logs);
    touched = calloc(msim.launch->site_count + 1, sizeof *touched);
    touched_count = 0;
    for (uint32_t i = 0; i < msim.buffer_count; i++) {
        msim_region *region = &msim.buffers[i];
        uint64_t lines = region->bytes / LINE_BYTES + 2;
        region->line_read = calloc(lines, sizeof *region->line_read);
        region->line_written = calloc(lines, sizeof *region->line_written);
        if (!region->line_read || !region->line_written) return false;
    }
    return logs && touched;
}

void msim_drop_counters(void) {
    for (uint32_t i = 0; logs && i <= msim.launch->site_count; i++) free(logs[i].accesses);
    for (uint32_t i = 0; i < msim.buffer_count; i++) {
        free(msim.buffers[i].line_read);
        free(msim.buffers[i].line_written);
    }
    free(logs);
    free(touched);
    logs = NULL;
    touched = NULL;
}

/* Counts a line once per segment and once per threadgroup. */
static inline void stamp_line(msim_line_stamp *line, uint64_t *group_lines, uint64_t *segment_lines) {
    if (line->segment == msim.segment) return;
    line->segment = msim.segment;
    ++*segment_lines;
    if (msim.counted_segment != msim.segment) {
        msim.counted_segment = msim.segment;
        msim.counts->device_segments++;
    }
    if (line->group == msim.group_stamp) return;
    line->group = msim.group_stamp;
    ++*group_lines;
}

static void stamp_lines(msim_region *region, uintptr_t address, uint32_t bytes, uint32_t access) {
    uint64_t offset = address - region->base;
    if (offset + bytes > region->bytes) return;
    if (access != ACCESS_STORE) msim.counts->device_bytes_read += bytes;
    if (access != ACCESS_LOAD) msim.counts->device_bytes_written += bytes;
    for (uint64_t line = offset / LINE_BYTES; line <= (offset + bytes - 1) / LINE_BYTES; line++) {
        msim_group_counts *counts = msim.counts;
        if (access != ACCESS_STORE)
            stamp_line(&region->line_read[line], &counts->device_lines_read, &counts->device_segment_lines_read);
        if (access != ACCESS_LOAD)
            stamp_line(&region->line_written[line], &counts->device_lines_written,
                       &counts->device_segment_lines_written);
    }
}

void msim_count_access(msim_region *region, uintptr_t address, uint32_t bytes, uint32_t site, uint32_t access) {
    if (!bytes) return;
    bool device = !region->threadgroup && region->role != ROLE_CONSTANT;
    if (device) stamp_lines(region, address, bytes, access);
    if (region->threadgroup) {
        if (access != ACCESS_STORE) msim.counts->threadgroup_bytes_read += bytes;
        if (access != ACCESS_LOAD) msim.counts->threadgroup_bytes_written += bytes;
    }
    site_log *log = &logs[site];
    if (!log->count) touched[touched_count++] = site;
    uint32_t nth = log->executed[msim.current->lane]++;
    if (nth == log->capacity) {
        uint32_t capacity = log->capacity ? 2 * log->capacity : 8;
        simd_access *grown = realloc(log->accesses, capacity * sizeof *grown);
        if (!grown) msim_stop();
        log->accesses = grown;
        log->capacity = capacity;
    }
    simd_access *entry = &log->accesses[nth];
    if (nth >= log->count) {
        log->count = nth + 1;
        entry->lanes = 0;
        entry->bytes = bytes;
        entry->region = region;
    }
    entry->address[entry->lanes++] = address;
}

static uint32_t distinct_lines(const simd_access *entry) {
    uintptr_t seen[MAX_LINES];
    uint32_t count = 0;
    for (uint32_t i = 0; i < entry->lanes; i++) {
        uintptr_t last = (entry->address[i] + entry->bytes - 1) / LINE_BYTES;
        for (uintptr_t line = entry->address[i] / LINE_BYTES; line <= last; line++) {
            uint32_t k = count;
            while (k && seen[k - 1] != line) k--;
            if (!k && count < MAX_LINES) seen[count++] = line;
        }
    }
    return count;
}

/* Cycles that the busiest bank needs: lanes that want the same word share it. `least`: with all banks equally busy. */
static uint32_t bank_cycles(const simd_access *entry, uint32_t *least) {
    uintptr_t words[BANKS][SIMD_WIDTH];
    uint32_t count[BANKS] = {0}, most = 0, total = 0;
    for (uint32_t i = 0; i < entry->lanes; i++) {
        uintptr_t last = (entry->address[i] + entry->bytes - 1) / BANK_BYTES;
        for (uintptr_t word = entry->address[i] / BANK_BYTES; word <= last; word++) {
            uint32_t bank = word % BANKS, k = count[bank];
            while (k && words[bank][k - 1] != word) k--;
            if (k || count[bank] == SIMD_WIDTH) continue;
            words[bank][count[bank]++] = word;
            total++;
            if (count[bank] > most) most = count[bank];
        }
    }
    *least = (total + BANKS - 1) / BANKS;
    return most;
}

static void add_access(msim_site_counts *counts, const simd_access *entry) {
    if (entry->region->threadgroup) {
        counts->threadgroup_accesses += entry->lanes;
        counts->threadgroup_bytes += (uint64_t)entry->lanes * entry->bytes;
        counts->threadgroup_simd_accesses++;
        uint32_t least, cycles = bank_cycles(entry, &least);
        counts->threadgroup_bank_cycles += cycles;
        counts->threadgroup_bank_conflict_cycles += cycles - least;
        msim.counts->threadgroup_bytes_moved += (uint64_t)entry->lanes * entry->bytes;
        msim.counts->threadgroup_simd_accesses++;
        msim.counts->threadgroup_bank_cycles += cycles;
        msim.counts->threadgroup_bank_conflict_cycles += cycles - least;
    } else if (entry->region->role == ROLE_CONSTANT) {
        counts->constant_accesses += entry->lanes;
        counts->constant_bytes += (uint64_t)entry->lanes * entry->bytes;
        counts->constant_simd_accesses++;
    } else {
        counts->device_accesses += entry->lanes;
        counts->device_bytes += (uint64_t)entry->lanes * entry->bytes;
        counts->device_simd_accesses++;
        uint32_t lines = distinct_lines(entry);
        counts->device_lines += lines;
        msim.counts->device_simd_accesses++;
        msim.counts->device_lines += lines;
    }
}

/* The lanes of the SIMD-group are together again: evaluate what they did since. */
void msim_flush_counters(void) {
    for (uint32_t i = 0; i < touched_count; i++) {
        site_log *log = &logs[touched[i]];
        for (uint32_t k = 0; k < log->count; k++) add_access(&msim.launch->sites[touched[i]], &log->accesses[k]);
        log->count = 0;
        memset(log->executed, 0, sizeof log->executed);
    }
    touched_count = 0;
}
