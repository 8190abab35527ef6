/* Loads, stores, atomics and cp.async in every state space. */
#include "numeric.h"
#include "simt.h"

void lane_addresses(const Instruction *row, const Warp *warp, uint64_t *addresses) {
    int64_t offset = row->immediate;
    if (row->source0 < 0) {
        for (int lane = 0; lane < LANES; lane++) addresses[lane] = (uint64_t)offset;
    } else if (row->source_width == 8) {
        const uint64_t *base = (const uint64_t *)(warp->registers + row->source0);
        for (int lane = 0; lane < LANES; lane++) addresses[lane] = base[lane] + (uint64_t)offset;
    } else { /* 32-bit shared and local addresses wrap at 32 bits */
        const uint32_t *base = (const uint32_t *)(warp->registers + row->source0);
        for (int lane = 0; lane < LANES; lane++) addresses[lane] = base[lane] + (uint32_t)offset;
    }
    if (row->flags & FLAG_FRAME && row->opcode <= OP_STORE)
        for (int lane = 0; lane < LANES; lane++) addresses[lane] += warp->frame_base[lane];
}

/* Strong accesses order what other warps of the block see, where barriers do not join them all,
   and a warp that finds the same value again and again is waiting for it to change. */
static void order_strong(Block *block, Warp *warp, const Instruction *row, Access access) {
    if (row->flags & FLAG_RELEASE) warp->fenced = ++block->machine->clock;
    if (!block->machine->partial_barriers) return;
    if (access != ACCESS_STORE) warp_sees(block, warp);
    if (access != ACCESS_LOAD) warp_publishes(warp);
    if (access != ACCESS_LOAD) ++block->machine->clock;
}

static uint64_t mixed(uint64_t seen, uint64_t value) {
    return (seen ^ value) * UINT64_C(0x9E3779B97F4A7C15) + (seen >> 29);
}

/* Sorts generic addresses by window and makes them offsets within it. Returns how many spaces. */
int resolve_generic(LaneMask lanes, uint64_t *addresses, LaneMask by_space[4]) {
    memset(by_space, 0, 4 * sizeof *by_space);
    FOR_EACH_LANE(lane, lanes) {
        uint64_t address = addresses[lane];
        int space = SPACE_GLOBAL;
        if (address >= SHARED_WINDOW && address < LOCAL_WINDOW) {
            space = SPACE_SHARED, addresses[lane] = address - SHARED_WINDOW;
        } else if (address >= LOCAL_WINDOW && address < PARAMETER_WINDOW) {
            space = SPACE_LOCAL, addresses[lane] = address - LOCAL_WINDOW;
        } else if (address >= PARAMETER_WINDOW && address < WINDOW_END) {
            space = SPACE_PARAMETER, addresses[lane] = address - PARAMETER_WINDOW;
        }
        by_space[space] |= UINT32_C(1) << lane;
    }
    int used = 0;
    for (int space = 0; space < 4; space++) used += by_space[space] != 0;
    return used;
}

/* Where the bytes of a space lie in this process: origin + lane * lane_bytes + address. */
typedef struct {
    uintptr_t origin, lane_bytes;
} Place;

static Place place_of(const Block *block, const Warp *warp, int space) {
    uintptr_t local = (uintptr_t)block->machine->local_bytes;
    switch (space) {
    case SPACE_GLOBAL: return (Place){0, 0};
    case SPACE_SHARED: return (Place){(uintptr_t)block->shared, 0};
    case SPACE_LOCAL: return (Place){(uintptr_t)block->local + warp->first_thread * local, local};
    default: return (Place){(uintptr_t)block->machine->parameters, 0};
    }
}

static inline uint8_t *locate(Place place, int lane, uint64_t address) {
    return (uint8_t *)(place.origin + (uintptr_t)lane * place.lane_bytes + address);
}

/* Local memory is laid out so that neighbouring lanes' words are neighbours: a uniform offset
   costs four sectors a word. */
static LaneMask local_access(Block *block, const Warp *warp, const Instruction *row, int pc,
                             LaneMask lanes, const uint64_t *addresses, int bytes, int space,
                             Access access) {
    Machine *machine = block->machine;
    uint64_t size = (uint64_t)(space == SPACE_LOCAL ? machine->local_bytes : machine->parameter_bytes);
    LaneMask allowed = lanes;
    int detail = access == ACCESS_LOAD ? DETAIL_READ : DETAIL_WRITE;
    FOR_EACH_LANE(lane, lanes) {
        uint64_t address = addresses[lane];
        bool outside = address + (uint64_t)bytes > size || address > size;
        if (!outside && !(address & (uint64_t)(bytes - 1))) continue;
        allowed &= ~(UINT32_C(1) << lane);
        report(block, outside ? KIND_OUT_OF_BOUNDS : KIND_MISALIGNED, pc, warp, lane, address,
               space, detail, -1, -1);
    }
    if (space != SPACE_LOCAL || row->flags & FLAG_UNCOUNTED) return allowed;
    Counter *counter = &machine->counters[pc];
    uint64_t seen[LANES];
    int count = 0, words = bytes > 4 ? bytes / 4 : 1;
    FOR_EACH_LANE(lane, allowed) {
        uint64_t sector = (addresses[lane] >> 2) * 4 + (uint64_t)lane / 8;
        bool known = false;
        for (int i = 0; i < count && !known; i++) known = seen[i] == sector;
        if (!known) seen[count++] = sector;
    }
    counter->local_requests++;
    counter->local_sectors += (int64_t)count * words;
    return allowed;
}

static LaneMask check_access(Block *block, const Warp *warp, const Instruction *row, int pc,
                             LaneMask lanes, const uint64_t *addresses, int bytes, int space,
                             Access access, const uint8_t (*values)[32]) {
    if (space == SPACE_GLOBAL) {
        lanes = global_access(block, warp, row, pc, lanes, addresses, bytes, access);
        if (block->machine->checks) {
            global_shadow(block, warp, row, pc, lanes, addresses, bytes, access, values);
            synchronise(block, (Warp *)warp, row, access, true);
        }
    } else if (space == SPACE_SHARED) {
        lanes = shared_access(block, warp, row, pc, lanes, addresses, bytes, access);
        if (block->machine->checks) {
            shared_shadow(block, warp, row, pc, lanes, addresses, bytes, access, values);
            synchronise(block, (Warp *)warp, row, access, false);
        }
    } else {
        lanes = local_access(block, warp, row, pc, lanes, addresses, bytes, space, access);
        if (block->machine->checks && space == SPACE_LOCAL)
            local_shadow(block, warp, row, pc, lanes, addresses, bytes, access);
    }
    return lanes;
}

static uint64_t load_value(const uint8_t *from, int type) {
    uint64_t value = 0;
    switch (type) { /* signed types extend into a wider register */
    case TYPE_S8: return (uint64_t)(int64_t)*(const int8_t *)from;
    case TYPE_S16: return (uint64_t)(int64_t)*(const int16_t *)from;
    case TYPE_S32: return (uint64_t)(int64_t)*(const int32_t *)from;
    default: memcpy(&value, from, (size_t)type_bytes(type)); return value;
    }
}

/* At how many words of four bytes do the lanes begin? Addresses mostly ascend: look behind only when
   they do not. */
static int count_words(LaneMask lanes, const uint64_t *addresses) {
    uint64_t words[LANES], largest = 0;
    int count = 0;
    FOR_EACH_LANE(lane, lanes) {
        uint64_t word = addresses[lane] >> 2;
        bool known = false;
        if (count && word <= largest)
            for (int i = count - 1; i >= 0 && !known; i--) known = words[i] == word;
        if (known) continue;
        if (word > largest) largest = word;
        words[count++] = word;
    }
    return count;
}

static void load(Block *block, Warp *warp, const Instruction *row, int pc, LaneMask lanes,
                 const uint64_t *addresses, int space) {
    int bytes = type_bytes(row->type);
    Place place = place_of(block, warp, space);
    LaneMask allowed = check_access(block, warp, row, pc, lanes, addresses, bytes * row->count,
                                    space, ACCESS_LOAD, NULL);
    /* Constants at addresses known before are operands and cost nothing; the others take turns. */
    if (row->flags & FLAG_UNCOUNTED && row->source0 >= 0 && space != SPACE_LOCAL)
        block->machine->counters[pc].constant_words += count_words(allowed, addresses);
    const int32_t *operands = block->machine->operands + row->operands;
    if (row->flags & FLAG_STRONG) {
        uint64_t seen = lanes;
        FOR_EACH_LANE(lane, allowed)
            seen = mixed(mixed(seen, addresses[lane]),
                         load_value(locate(place, lane, addresses[lane]), row->type));
        note_polling(warp, pc, seen);
        order_strong(block, warp, row, ACCESS_LOAD);
    }
    for (int item = 0; item < row->count; item++) {
        if (operands[2 * item] < 0) continue;
        uint8_t *destination = warp->registers + operands[2 * item];
        int width = operands[2 * item + 1];
        if (bytes == 4 && width == 4 && allowed == lanes) {
            if (lanes == ALL_LANES) {
                for (int lane = 0; lane < LANES; lane++)
                    memcpy(destination + 4 * lane,
                           locate(place, lane, addresses[lane]) + 4 * item, 4);
            } else {
                FOR_EACH_LANE(lane, lanes)
                    memcpy(destination + 4 * lane,
                           locate(place, lane, addresses[lane]) + 4 * item, 4);
            }
            continue;
        }
        FOR_EACH_LANE(lane, lanes) { /* a refused access reads zero */
            uint64_t value = 0;
            if (allowed >> lane & 1)
                value = load_value(locate(place, lane, addresses[lane]) + bytes * item,
                                   row->type);
            write_lane(destination, width, lane, value);
        }
    }
}

static void store(Block *block, Warp *warp, const Instruction *row, int pc, LaneMask lanes,
                  const uint64_t *addresses, int space) {
    int bytes = type_bytes(row->type);
    const int32_t *operands = block->machine->operands + row->operands;
    uint8_t values[LANES][32];
    for (int item = 0; item < row->count; item++) {
        const uint8_t *source = warp->registers + operands[2 * item];
        int width = operands[2 * item + 1];
        if (bytes == 4 && width == 4) {
            FOR_EACH_LANE(lane, lanes) memcpy(values[lane] + 4 * item, source + 4 * lane, 4);
            continue;
        }
        FOR_EACH_LANE(lane, lanes) {
            uint64_t value = read_lane(source, width, lane);
            memcpy(values[lane] + bytes * item, &value, (size_t)bytes);
        }
    }
    int total = bytes * row->count;
    Place place = place_of(block, warp, space);
    block->changes++;
    if (row->flags & FLAG_STRONG) order_strong(block, warp, row, ACCESS_STORE);
    LaneMask allowed = check_access(block, warp, row, pc, lanes, addresses, total, space,
                                    ACCESS_STORE, (const uint8_t(*)[32])values);
    if (total == 4) {
        FOR_EACH_LANE(lane, allowed) memcpy(locate(place, lane, addresses[lane]), values[lane], 4);
    } else {
        FOR_EACH_LANE(lane, allowed)
            memcpy(locate(place, lane, addresses[lane]), values[lane], (size_t)total);
    }
    if (!block->machine->checks || space > SPACE_SHARED) return;
    /* Lanes that stored different values to one place: which one stays is not defined. */
    FOR_EACH_LANE(lane, allowed)
        if (memcmp(locate(place, lane, addresses[lane]), values[lane], (size_t)total))
            report(block, KIND_RACE, pc, warp, lane, addresses[lane], space,
                   DETAIL_SAME_INSTRUCTION, block->index, warp->first_thread / LANES);
}

static uint64_t add_typed(int type, uint64_t old, uint64_t value) {
    uint16_t low = (uint16_t)old, other = (uint16_t)value;
    uint16_t high = (uint16_t)(old >> 16), other_high = (uint16_t)(value >> 16);
    switch (type) {
    case TYPE_F32: return bits_of(float_of((uint32_t)old) + float_of((uint32_t)value));
    case TYPE_F64: return double_bits(double_of(old) + double_of(value));
    case TYPE_F16: return float_to_half(half_to_float(low) + half_to_float(other));
    case TYPE_BF16: return float_to_bfloat(bfloat_to_float(low) + bfloat_to_float(other));
    case TYPE_F16X2:
        return float_to_half(half_to_float(low) + half_to_float(other)) |
               (uint32_t)float_to_half(half_to_float(high) + half_to_float(other_high)) << 16;
    case TYPE_BF16X2:
        return float_to_bfloat(bfloat_to_float(low) + bfloat_to_float(other)) |
               (uint32_t)float_to_bfloat(bfloat_to_float(high) + bfloat_to_float(other_high)) << 16;
    default: return old + value;
    }
}

/* Of halves: each part by itself, and a NaN loses. */
static uint64_t extreme_of_halves(int type, uint64_t old, uint64_t value, bool largest) {
    int parts = type == TYPE_F16X2 || type == TYPE_BF16X2 ? 2 : 1;
    uint64_t result = 0;
    for (int part = 0; part < parts; part++) {
        uint16_t x = (uint16_t)(old >> 16 * part), y = (uint16_t)(value >> 16 * part);
        bool half = type == TYPE_F16 || type == TYPE_F16X2;
        float p = half ? half_to_float(x) : bfloat_to_float(x);
        float q = half ? half_to_float(y) : bfloat_to_float(y);
        bool take = p != p || (largest ? q > p : q < p);
        result |= (uint64_t)(take ? y : x) << 16 * part;
    }
    return result;
}

static bool is_half(int type) {
    return type == TYPE_F16 || type == TYPE_BF16 || type == TYPE_F16X2 || type == TYPE_BF16X2;
}

static bool less(int type, uint64_t left, uint64_t right) {
    switch (type) {
    case TYPE_S32: return (int32_t)left < (int32_t)right;
    case TYPE_S64: return (int64_t)left < (int64_t)right;
    default: return left < right;
    }
}

uint64_t atomic_result(int operation, int type, uint64_t old, uint64_t value, uint64_t swap) {
    if (is_half(type) && (operation == ATOMIC_MIN || operation == ATOMIC_MAX))
        return extreme_of_halves(type, old, value, operation == ATOMIC_MAX);
    switch (operation) {
    case ATOMIC_ADD: return add_typed(type, old, value);
    case ATOMIC_MIN: return less(type, value, old) ? value : old;
    case ATOMIC_MAX: return less(type, old, value) ? value : old;
    case ATOMIC_AND: return old & value;
    case ATOMIC_OR: return old | value;
    case ATOMIC_XOR: return old ^ value;
    case ATOMIC_EXCH: return value;
    case ATOMIC_CAS: return old == value ? swap : old;
    case ATOMIC_INC: return old >= value ? 0 : old + 1;
    default: return old == 0 || old > value ? value : old - 1; /* ATOMIC_DEC */
    }
}

static void atomic(Block *block, Warp *warp, const Instruction *row, int pc, LaneMask lanes,
                   const uint64_t *addresses, int space) {
    int bytes = type_bytes(row->type), items = row->count;
    Place place = place_of(block, warp, space);
    uint64_t low = bytes == 8 ? ~UINT64_C(0) : (UINT64_C(1) << (8 * bytes)) - 1, seen = lanes;
    bool changed = false, looks = false; /* one whose old value nobody gets waits for nothing */
    LaneMask allowed = check_access(block, warp, row, pc, lanes, addresses, bytes * items, space,
                                    ACCESS_ATOMIC, NULL);
    /* (offset, width) of each old value, then of each operand */
    const int32_t *results = block->machine->operands + row->operands, *values = results + 2 * items;
    FOR_EACH_LANE(lane, allowed) {
        for (int item = 0; item < items; item++) {
            uint8_t *target = locate(place, lane, addresses[lane]) + bytes * item;
            int width = values[2 * item + 1];
            uint64_t old = 0;
            uint64_t value = read_lane(warp->registers + values[2 * item], width, lane) & low;
            uint64_t swap = row->source2 >= 0
                                ? read_lane(warp->registers + row->source2, width, lane) & low
                                : 0;
            memcpy(&old, target, (size_t)bytes);
            uint64_t result = atomic_result(row->target, row->type, old, value, swap) & low;
            memcpy(target, &result, (size_t)bytes);
            looks |= results[2 * item] >= 0;
            if (results[2 * item] >= 0)
                write_lane(warp->registers + results[2 * item], results[2 * item + 1], lane, old);
            changed |= result != old;
            seen = mixed(mixed(seen, addresses[lane]), old);
        }
    }
    if (changed) block->changes++, warp->spin_count = 0, warp->spin_pc = -1;
    else if (looks) note_polling(warp, pc, seen);
    order_strong(block, warp, row, ACCESS_ATOMIC);
}

/* Copies are kept back until they are waited for: a missing wait then reads stale memory. */
static void begin_copy(Block *block, Warp *warp, const Instruction *row, int pc, LaneMask lanes) {
    if (warp->copy_count == warp->copy_capacity) {
        int capacity = warp->copy_capacity ? 2 * warp->copy_capacity : 16;
        PendingCopy *grown = realloc(warp->copies, (size_t)capacity * sizeof *grown);
        if (!grown) {
            block->stop = true, block->status = STATUS_OUT_OF_MEMORY;
            return;
        }
        warp->copies = grown;
        warp->copy_capacity = capacity;
    }
    PendingCopy *copy = &warp->copies[warp->copy_count++];
    copy->pc = pc, copy->bytes = row->count, copy->group = warp->copy_group, copy->lanes = lanes;
    lane_addresses(row, warp, copy->shared_address);
    const int32_t *operands = block->machine->operands + row->operands; /* source, its offset */
    LaneMask reading = 0;
    FOR_EACH_LANE(lane, lanes) {
        copy->global_address[lane] =
            read_lane(warp->registers + operands[0], 8, lane) + (uint64_t)(int64_t)operands[1];
        uint32_t size = (uint32_t)row->count;
        if (row->source1 >= 0) size = ((uint32_t *)(warp->registers + row->source1))[lane];
        if (row->source2 >= 0 && *(LaneMask *)(warp->registers + row->source2) >> lane & 1) size = 0;
        copy->source_bytes[lane] = (uint8_t)(size > (uint32_t)row->count ? row->count : (int)size);
        if (copy->source_bytes[lane]) reading |= UINT32_C(1) << lane;
    }
    LaneMask allowed = reading;
    block->lane_bytes = row->source1 >= 0 ? copy->source_bytes : NULL;
    if (reading)
        allowed = check_access(block, warp, row, pc, reading, copy->global_address, row->count,
                               SPACE_GLOBAL, ACCESS_LOAD, NULL);
    block->lane_bytes = NULL;
    FOR_EACH_LANE(lane, reading & ~allowed) copy->source_bytes[lane] = 0;
    copy->lanes = shared_access(block, warp, row, pc, lanes, copy->shared_address, row->count,
                                ACCESS_STORE);
    if (row->flags & FLAG_BYPASS)
        count_copy(&block->machine->counters[pc], reading & allowed & copy->lanes, copy);
    if (block->machine->checks)
        shared_copy_begins(block, warp, pc, copy->lanes, copy->shared_address, row->count);
}

static void finish_copy(Block *block, Warp *warp, const PendingCopy *copy) {
    uint8_t values[LANES][32];
    FOR_EACH_LANE(lane, copy->lanes) {
        memset(values[lane], 0, sizeof values[lane]);
        memcpy(values[lane], (const void *)copy->global_address[lane], copy->source_bytes[lane]);
    }
    if (block->machine->checks) {
        shared_copy_ends(block, copy->lanes, copy->shared_address, copy->bytes);
        shared_shadow(block, warp, &block->machine->code[copy->pc], copy->pc, copy->lanes,
                      copy->shared_address, copy->bytes, ACCESS_STORE,
                      (const uint8_t(*)[32])values);
    }
    FOR_EACH_LANE(lane, copy->lanes)
        memcpy(block->shared + copy->shared_address[lane], values[lane], (size_t)copy->bytes);
}

/* Finishes all but the latest `groups_left` committed groups; -1 finishes uncommitted ones too. */
void complete_copies(Block *block, Warp *warp, int groups_left) {
    int kept = 0, first_kept = warp->copy_group - groups_left;
    for (int i = 0; i < warp->copy_count; i++) {
        if (groups_left < 0 || warp->copies[i].group < first_kept)
            finish_copy(block, warp, &warp->copies[i]);
        else
            warp->copies[kept++] = warp->copies[i];
    }
    warp->copy_count = kept;
}

void execute_memory(Block *block, Warp *warp, const Instruction *row, int pc, LaneMask lanes) {
    switch (row->opcode) {
    case OP_ASYNC_COPY: begin_copy(block, warp, row, pc, lanes); return;
    case OP_ASYNC_COMMIT: warp->copy_group++; return;
    case OP_ASYNC_WAIT: complete_copies(block, warp, row->count); return;
    }
    uint64_t addresses[LANES];
    LaneMask by_space[4] = {0};
    lane_addresses(row, warp, addresses);
    if (row->space == SPACE_GENERIC) resolve_generic(lanes, addresses, by_space);
    else by_space[row->space] = lanes;
    for (int space = 0; space < 4; space++) {
        if (!by_space[space]) continue;
        if (row->opcode == OP_LOAD) load(block, warp, row, pc, by_space[space], addresses, space);
        else if (row->opcode == OP_STORE)
            store(block, warp, row, pc, by_space[space], addresses, space);
        else atomic(block, warp, row, pc, by_space[space], addresses, space);
    }
}
