/* NaNs that were born: each place gets a number, which its NaNs carry in their topmost six payload bits.
 *
 * Those bits survive arithmetic and conversions between the formats; metalsim/build/births.py reads them from outputs.
 */
#include "msim.h"

enum { LAST_NUMBER = 62 };

static uint32_t birth_count;

/* Number of the place; 0 when it is one too many. */
static uint32_t number_birth(uint32_t site, const msim_thread *lane, const char *operation, const double *operands,
                             uint32_t count) {
    uint32_t line = operation ? lane->request->line : 0;
    const char *place = operation ? lane->request->place : "";
    for (uint32_t i = 0; i < msim.launch->event_count; i++) {
        msim_event *event = &msim.launch->events[i];
        if (event->kind != EVENT_NAN_BORN || event->site != site || event->line != line) continue;
        event->count++;
        return (uint32_t)event->offset;
    }
    if (birth_count == LAST_NUMBER) return 0;
    msim_event *event = msim_add_event(EVENT_NAN_BORN, site, NO_INDEX, line, place);
    if (!event) return 0;
    event->thread = lane->thread;
    event->offset = ++birth_count;
    event->operand_count = count;
    memcpy(event->operands, operands, count * sizeof *operands);
    copy_text(event->text, sizeof event->text, operation);
    return birth_count;
}

void msim_forget_births(void) { birth_count = 0; }

static bool all_numbers(const double *operands, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        if (operands[i] != operands[i]) return false;
    return true;
}

static uint64_t marked(uint32_t site, const double *operands, uint32_t count, uint64_t quiet, uint32_t shift) {
    return quiet | (uint64_t)number_birth(site, msim.current, NULL, operands, count) << shift;
}

static float float_marked(uint64_t bits) {
    uint32_t narrow = (uint32_t)bits;
    float result;
    memcpy(&result, &narrow, sizeof result);
    return result;
}

float msim_born_f32(float r, float a, float b, float c, uint32_t count, uint32_t site) {
    double operands[3] = {a, b, c};
    if (r == r || !msim.current || !all_numbers(operands, count)) return r;
    return float_marked(marked(site, operands, count, 0x7fc00000, 16));
}

double msim_born_f64(double r, double a, double b, double c, uint32_t count, uint32_t site) {
    double operands[3] = {a, b, c};
    if (r == r || !msim.current || !all_numbers(operands, count)) return r;
    uint64_t bits = marked(site, operands, count, 0x7ff8000000000000u, 45);
    memcpy(&r, &bits, sizeof r);
    return r;
}

uint16_t msim_born_f16(uint16_t r, uint16_t a, uint16_t b, uint16_t c, uint32_t count, uint32_t site) {
    double operands[3] = {float_of_half(a), float_of_half(b), float_of_half(c)};
    if ((r & 0x7fff) <= 0x7c00 || !msim.current || !all_numbers(operands, count)) return r;
    return (uint16_t)marked(site, operands, count, 0x7e00, 3);
}

uint16_t msim_born_bf16(uint16_t r, uint16_t a, uint16_t b, uint16_t c, uint32_t count, uint32_t site) {
    double operands[3] = {msim_float_of_bfloat(a), msim_float_of_bfloat(b), msim_float_of_bfloat(c)};
    if ((r & 0x7fff) <= 0x7f80 || !msim.current || !all_numbers(operands, count)) return r;
    return (uint16_t)marked(site, operands, count, 0x7fc0, 0);
}

/* A NaN that a collective made of the operands, marked. */
float msim_collective_birth(const msim_thread *lane, const char *operation, const float *operands, uint32_t count) {
    double widened[3] = {0};
    for (uint32_t i = 0; i < count; i++) widened[i] = operands[i];
    return float_marked(0x7fc00000 | (uint64_t)number_birth(NO_INDEX, lane, operation, widened, count) << 16);
}
