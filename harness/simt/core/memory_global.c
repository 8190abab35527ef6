/* Global memory: bounds, alignment, sectors and lines per request, data races between blocks. */
#include "simt.h"

static __attribute__((noinline)) int search_allocation(Block *block, uint64_t address,
                                                       uint64_t bytes) {
    const Machine *machine = block->machine;
    const uint64_t *starts = machine->allocation_starts, *ends = machine->allocation_ends;
    int low = 0, high = machine->allocation_count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (starts[middle] <= address) low = middle + 1;
        else high = middle;
    }
    if (low == 0 || address + bytes > ends[low - 1] || address + bytes < address) return -1;
    return block->near_allocation = low - 1;
}

/* Finds the allocation that holds [address, address + bytes), or -1: mostly the one before. */
static inline int find_allocation(Block *block, uint64_t address, uint64_t bytes) {
    const Machine *machine = block->machine;
    int near = block->near_allocation;
    if (near < machine->allocation_count && address >= machine->allocation_starts[near] &&
        address + bytes <= machine->allocation_ends[near] && address + bytes > address)
        return near;
    return search_allocation(block, address, bytes);
}

static void keep_before(Block *block, uint32_t sector) {
    Machine *machine = block->machine;
    if (machine->before_length == machine->before_capacity) {
        int64_t capacity = machine->before_capacity ? 2 * machine->before_capacity : 1 << 10;
        Before *larger = realloc(machine->before, (size_t)capacity * sizeof *larger);
        if (!larger) {
            block->stop = true, block->status = STATUS_OUT_OF_MEMORY;
            return;
        }
        machine->before = larger, machine->before_capacity = capacity;
    }
    Before *before = &machine->before[machine->before_length++];
    before->address = machine->arena_base + ((uint64_t)sector << SECTOR_SHIFT);
    memcpy(before->bytes, (const void *)before->address, sizeof before->bytes);
}

static void touch_sector(Block *block, uint32_t sector, int allocation, Access access) {
    Machine *machine = block->machine;
    SectorUse *use = &machine->sectors[sector];
    AllocationUse *total = &machine->uses[allocation];
    /* What atomics touch is everybody's, though the block took part. */
    if (access == ACCESS_LOAD && (use->written_by != block->number || use->atomics)) {
        total->looked += !use->looked_at_by;
        use->looked_at_by = block->number;
    } else if (access == ACCESS_STORE && use->looked_at_by == block->number && !use->atomics) {
        total->looked--;
        use->looked_at_by = 0;
    }
    if (machine->keeping && access != ACCESS_LOAD && !use->written_by) keep_before(block, sector);
    if (access == ACCESS_LOAD) total->loads++;
    if (access == ACCESS_ATOMIC) {
        if (sector < total->atomic_first) total->atomic_first = sector;
        if (sector > total->atomic_last) total->atomic_last = sector;
    }
    if (access != ACCESS_STORE && use->read_by != block->number) {
        total->block_read_sectors++;
        use->readers++;
        if (!use->read_by) {
            total->read_sectors++;
            if (sector < total->read_first) total->read_first = sector;
            if (sector > total->read_last) total->read_last = sector;
        }
        use->read_by = block->number;
    }
    if (access != ACCESS_LOAD && use->written_by != block->number) {
        total->block_written_sectors++;
        if (!use->written_by) {
            total->written_sectors++;
            if (sector < total->written_first) total->written_first = sector;
            if (sector > total->written_last) total->written_last = sector;
        }
        use->written_by = block->number;
        use->stored = 0;
    }
}

/* Counts the bytes of a followed allocation that nobody has read yet who had not written them, and
   those that a block writes and has not written since another wrote to their sector. */
static void count_bytes(Block *block, int allocation, uint64_t offset, int64_t bytes,
                        Access access) {
    Machine *machine = block->machine;
    int column = machine->followed[allocation];
    if (column < 0) return;
    uint32_t *stored = &machine->stored[(block->number - 1 - machine->first_block) *
                                            machine->followed_count + column];
    while (bytes > 0) {
        SectorUse *use = &machine->sectors[offset >> SECTOR_SHIFT];
        int start = (int)(offset & 31), part = bytes < 32 - start ? (int)bytes : 32 - start;
        uint32_t mask = (part == 32 ? ~UINT32_C(0) : (UINT32_C(1) << part) - 1) << start;
        if (access != ACCESS_STORE) {
            uint32_t left = use->written_by == block->number ? mask & ~use->stored : mask;
            machine->uses[allocation].read_bytes += __builtin_popcount(left & ~use->seen);
            use->seen |= left;
        }
        if (access != ACCESS_LOAD) {
            *stored += (uint32_t)__builtin_popcount(mask & ~use->stored);
            use->stored |= mask;
        }
        offset += (uint64_t)part, bytes -= part;
    }
}

#define MOST_TRACED (INT64_C(1) << 26) /* words: 256 MB */

/* Trace record: block number, warp, pc, sector count | store << 8 | atomic << 9 | past the L1 << 10,
   sectors. */
static void append_trace(Block *block, const Warp *warp, const Instruction *row, int pc,
                         Access access, const uint32_t *sectors, int count) {
    Machine *machine = block->machine;
    if (machine->traced && !machine->traced[block->number - 1]) return;
    if (machine->trace_length + 4 + LANES > MOST_TRACED) return;
    if (machine->trace_length + 4 + LANES > machine->trace_capacity) {
        int64_t capacity = machine->trace_capacity ? 2 * machine->trace_capacity : 1 << 16;
        uint32_t *grown = realloc(machine->trace, (size_t)capacity * sizeof *grown);
        if (!grown) {
            block->stop = true;
            block->status = STATUS_OUT_OF_MEMORY;
            return;
        }
        machine->trace = grown;
        machine->trace_capacity = capacity;
    }
    uint32_t *record = machine->trace + machine->trace_length;
    record[0] = block->number;
    record[1] = warp->first_thread / LANES;
    record[2] = (uint32_t)pc;
    record[3] = (uint32_t)count | (uint32_t)(access == ACCESS_STORE) << 8 |
                (uint32_t)(access == ACCESS_ATOMIC) << 9 |
                (uint32_t)!!(row->flags & FLAG_BYPASS) << 10;
    memcpy(record + 4, sectors, (size_t)count * sizeof *sectors);
    machine->trace_length += 4 + count;
}

/* Adds a sector unless it is there; addresses mostly ascend, so look behind only when they do not. */
static inline int add_sector(uint32_t *sectors, int count, uint32_t sector, uint32_t *largest) {
    if (count && sector == sectors[count - 1]) return count;
    if (!count || sector > *largest) {
        *largest = sector;
    } else {
        for (int i = 0; i < count; i++)
            if (sectors[i] == sector) return count;
    }
    sectors[count] = sector;
    return count + 1;
}

static int count_lines(const uint32_t *sectors, int count, uint64_t arena_base) {
    uint32_t lines[LANES], largest = 0, first_line = (uint32_t)(arena_base >> SECTOR_SHIFT) & 3;
    int found = 0;
    for (int i = 0; i < count; i++)
        found = add_sector(lines, found, (sectors[i] + first_line) / LINE_SECTORS, &largest);
    return found;
}

/* What a block leaves after it went by what is missing is missing too. */
static void follow(Block *block, LaneMask lanes, const uint64_t *addresses, int bytes,
                   Access access) {
    Machine *machine = block->machine;
    FOR_EACH_LANE(lane, lanes) {
        uint64_t first = addresses[lane] - machine->arena_base;
        for (int done = 0; done < bytes; done += 4) { /* narrower accesses do not cross words */
            uint8_t *known = &machine->initialised[(first + (uint64_t)done) >> 2];
            uint8_t part = bytes >= 4 ? 15 : (uint8_t)(((1 << bytes) - 1) << (first & 3));
            if (access != ACCESS_STORE && part & ~*known) block->misled = true;
            if (access != ACCESS_LOAD && block->misled) *known &= (uint8_t)~part;
            else if (access == ACCESS_STORE) *known |= part;
        }
    }
}

/* Lanes of one request on one address take turns; those on other words of a sector go together,
   up to four at a time (measured on an H200). Where one is elected for all, the sector sees one. */
static void count_passes(Machine *machine, const Instruction *row, Counter *counter, LaneMask lanes,
                         const uint64_t *addresses) {
    LaneMask left = lanes;
    while (left) {
        uint64_t sector = addresses[__builtin_ctz(left)] >> SECTOR_SHIFT;
        int turns = 0, count = 0;
        FOR_EACH_LANE(lane, left) {
            if (addresses[lane] >> SECTOR_SHIFT != sector) continue;
            int same = 0;
            FOR_EACH_LANE(other, lanes) same += addresses[other] == addresses[lane];
            if (same > turns) turns = same;
            count++;
            left &= ~(UINT32_C(1) << lane);
        }
        SectorUse *use = &machine->sectors[sector - (machine->arena_base >> SECTOR_SHIFT)];
        use->atomics += row->flags & FLAG_ELECTED ? 1 : (uint32_t)turns;
        if (use->atomics > machine->hottest_sector) machine->hottest_sector = use->atomics;
        counter->atomic_turns += turns;
        counter->atomic_passes += turns > (count + 3) / 4 ? turns : (count + 3) / 4;
    }
}

/* How many lines of 64 bytes of constant memory are read at addresses that registers hold. */
static void note_constant(Machine *machine, uint32_t sector) {
    SectorUse *use = &machine->sectors[sector];
    machine->constant_lines += !use->read_by;
    use->read_by = 1;
}

/* Counts one request and returns the lanes that may go on: the others are reported. */
LaneMask global_access(Block *block, const Warp *warp, const Instruction *row, int pc,
                       LaneMask lanes, const uint64_t *addresses, int bytes, Access access) {
    Machine *machine = block->machine;
    Counter *counter = &machine->counters[pc];
    uint64_t base = machine->arena_base, first = addresses[__builtin_ctz(lanes)];
    uint32_t sectors[LANES], largest = 0;
    int allocations[LANES], sector_count = 0, lane_count = 0;
    int64_t byte_count = 0, extent = 0;
    LaneMask allowed = lanes;
    bool simple = false;
    /* Neighbours or one address for all: no lane needs its own look. */
    if (lanes == ALL_LANES && !block->lane_bytes) {
        uint64_t neighbours = 0, same = 0;
        for (int lane = 0; lane < LANES; lane++) {
            neighbours |= addresses[lane] ^ (first + (uint64_t)(bytes * lane));
            same |= addresses[lane] ^ first;
        }
        extent = same ? LANES * bytes : bytes;
        int allocation =
            !neighbours || !same ? find_allocation(block, first, (uint64_t)extent) : -1;
        if (allocation >= 0 && !(first & (uint64_t)(bytes - 1))) {
            uint32_t low = (uint32_t)((first - base) >> SECTOR_SHIFT);
            uint32_t high = (uint32_t)((first + (uint64_t)extent - 1 - base) >> SECTOR_SHIFT);
            for (uint32_t sector = low; sector <= high; sector++) {
                allocations[sector_count] = allocation;
                sectors[sector_count++] = sector;
            }
            lane_count = LANES;
            byte_count = LANES * (int64_t)bytes;
            simple = true;
        }
    }
    if (!simple) {
        FOR_EACH_LANE(lane, lanes) {
            uint64_t address = addresses[lane];
            int own = block->lane_bytes ? block->lane_bytes[lane] : bytes;
            int allocation = find_allocation(block, address, (uint64_t)own);
            int detail = access == ACCESS_LOAD ? DETAIL_READ : DETAIL_WRITE, kind = -1;
            if (allocation < 0) kind = KIND_OUT_OF_BOUNDS;
            else if (address & (uint64_t)(bytes - 1)) kind = KIND_MISALIGNED;
            if (kind >= 0) {
                allowed &= ~(UINT32_C(1) << lane);
                report(block, kind, pc, warp, lane, address, SPACE_GLOBAL, detail, -1, -1);
            } else {
                uint32_t sector = (uint32_t)((address - base) >> SECTOR_SHIFT);
                lane_count++;
                byte_count += own;
                if (sector_count && sector == sectors[sector_count - 1]) continue;
                int before = sector_count;
                sector_count = add_sector(sectors, sector_count, sector, &largest);
                if (sector_count > before) allocations[before] = allocation;
            }
        }
    }
    if (machine->following) follow(block, allowed, addresses, bytes, access);
    /* Constants come by a cache of their own. */
    if (row->flags & FLAG_UNCOUNTED) {
        if (row->source0 >= 0 && !machine->checks)
            for (int i = 0; i < sector_count; i++) note_constant(machine, sectors[i] & ~1u);
        return allowed;
    }
    for (int i = 0; i < sector_count; i++) touch_sector(block, sectors[i], allocations[i], access);
    bool followed = false;
    for (int i = 0; machine->stored && i < sector_count; i++)
        followed |= machine->followed[allocations[i]] >= 0;
    if (followed && simple) count_bytes(block, allocations[0], first - base, extent, access);
    else if (followed) FOR_EACH_LANE(lane, allowed) {
        int own = block->lane_bytes ? block->lane_bytes[lane] : bytes;
        int allocation = find_allocation(block, addresses[lane], (uint64_t)own);
        count_bytes(block, allocation, addresses[lane] - base, own, access);
    }
    counter->global_requests++;
    block->asked++;
    counter->sectors += sector_count;
    counter->lines += count_lines(sectors, sector_count, base);
    counter->bytes += byte_count;
    if (machine->tracing) append_trace(block, warp, row, pc, access, sectors, sector_count);
    if (access == ACCESS_ATOMIC) {
        counter->atomic_lanes += lane_count;
        count_passes(machine, row, counter, allowed, addresses);
    }
    return allowed;
}

/* Was what a thread (or several, see simt.h) did at `time` done before this access, whatever the
   schedule? */
static bool ordered(const Block *block, const Warp *warp, int lane, uint32_t other_block, int other,
                    uint32_t time) {
    if (other_block == block->number) {
        int number = (int)(warp->first_thread / LANES);
        if (other == SEVERAL_WARPS) return warps_ordered(block, warp, -1, time);
        bool several = other & SEVERAL_LANES;
        int other_warp = several ? other & ~SEVERAL_LANES : other / LANES;
        if (other_warp != number) return warps_ordered(block, warp, other_warp, time);
        return time < block->epoch_start ||
               lanes_ordered(warp, several ? -1 : other % LANES, lane, time);
    }
    if (other_block == MANY_BLOCKS) return block->acquired != 0;
    /* Fence then atomic there, atomic here: the pattern of "the last block finishes". The first
       time after `time` at which the other block published counts. */
    const Releases *releases = &block->releases[other_block];
    int low = 0, high = releases->count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (releases->times[middle] <= time) low = middle + 1;
        else high = middle;
    }
    return low < releases->count && releases->times[low] <= block->acquired;
}

static void note_reader(Block *block, const Warp *warp, GlobalShadow *cell, int lane, uint8_t bytes,
                        int pc) {
    uint16_t thread = (uint16_t)(warp->first_thread + (uint32_t)lane);
    uint16_t several = SEVERAL_LANES | thread / LANES;
    bool recent = cell->reader_block == block->number && cell->reader_time >= block->epoch_start;
    bool same_warp = cell->reader == several || cell->reader / LANES == thread / LANES;
    /* Other warps or blocks that read other bytes of the word make room: a word has one entry. */
    bool apart = !(cell->read_bytes & bytes) && !(recent && same_warp);
    if (recent && !apart) {
        int before = cell->read_bytes;
        cell->read_bytes |= bytes;
        if (!same_warp) {
            bool seen = reader_ordered(block, warp, cell->reader, cell->reader_time);
            cell->reader = seen ? thread : SEVERAL_WARPS;
            renew_byte_readers(cell->byte_readers, bytes, lane);
        } else if (cell->reader == thread && is_since_meeting(warp, cell->reader_time)) {
            note_byte_readers(cell->byte_readers, before, bytes, lane);
        } else if (cell->reader != thread && cell->reader_time >= warp->synchronised) {
            note_byte_readers(cell->byte_readers, before, bytes, lane);
            cell->reader = several, cell->reader_pc = short_pc(pc); /* the earlier time stays */
            return;
        } else {
            cell->reader = thread;
            renew_byte_readers(cell->byte_readers, bytes, lane);
        }
    } else if (cell->reader_block && cell->reader_block != block->number && !apart) {
        cell->reader_block = MANY_BLOCKS;
        cell->reader = SEVERAL_WARPS;
        cell->read_bytes |= bytes;
    } else {
        cell->reader_block = block->number;
        cell->reader = thread;
        cell->read_bytes = bytes;
        note_byte_readers(cell->byte_readers, 0, bytes, lane);
    }
    cell->reader_time = block->machine->clock;
    cell->reader_pc = short_pc(pc);
}

static void note_writer(Block *block, const Warp *warp, GlobalShadow *cell, int lane, uint8_t bytes,
                        int pc, bool atomic) {
    uint16_t thread = (uint16_t)(warp->first_thread + (uint32_t)lane);
    uint32_t now = block->machine->clock;
    if (atomic) {
        bool same = cell->atomic_block == block->number && cell->atomic / LANES == thread / LANES &&
                    cell->atomic_time >= block->epoch_start;
        cell->atomic_bytes = same ? cell->atomic_bytes | bytes : bytes;
        cell->atomic_block = block->number, cell->atomic = thread, cell->atomic_time = now;
        cell->atomic_pc = short_pc(pc);
        return;
    }
    bool recent = cell->writer_block == block->number && cell->writer_time >= block->epoch_start;
    bool same_warp = recent && cell->writer / LANES == thread / LANES;
    bool same_time = cell->writer_time == now;
    cell->latest_bytes = note_byte_writers(cell->byte_writers, same_warp ? cell->latest_bytes : 0,
                                           same_time, is_since_meeting(warp, cell->writer_time),
                                           bytes, lane);
    bool at_once = same_warp && (same_time || !is_known_in_part(block));
    cell->written_bytes = at_once ? cell->written_bytes | bytes : bytes;
    cell->writer_block = block->number, cell->writer = thread, cell->writer_time = now;
    cell->writer_pc = short_pc(pc);
}

typedef struct {
    int detail, other, other_pc;
    uint32_t other_block;
} Conflict;

/* `strong`: a volatile access or an atomic's guess, which only races with plain stores; `narrow`: one
   of the block's scope, which is like a plain one for the atomics of other blocks. */
static Conflict find_conflict(const Block *block, const Warp *warp, const GlobalShadow *cell,
                              int lane, int part, Access access, bool strong, bool narrow) {
    int after = access == ACCESS_LOAD ? DETAIL_READ_AFTER_WRITE : DETAIL_WRITE_AFTER_WRITE;
    int number = (int)(warp->first_thread / LANES);
    bool same_warp = cell->writer_block == block->number && cell->writer / LANES == number;
    int wrote = same_warp ? byte_writer(cell->byte_writers, cell->latest_bytes, part, lane)
                : cell->writer_block && cell->written_bytes & part ? cell->writer % LANES
                                                                   : -1;
    int writer = cell->writer / LANES * LANES + wrote;
    if (wrote >= 0 && !ordered(block, warp, lane, cell->writer_block, writer, cell->writer_time))
        return (Conflict){after, writer, cell->writer_pc, cell->writer_block};
    bool plain = !(strong || access == ACCESS_ATOMIC) ||
                 (narrow && cell->atomic_block != block->number);
    if (plain && cell->atomic_block && cell->atomic_bytes & part &&
        !ordered(block, warp, lane, cell->atomic_block, cell->atomic, cell->atomic_time))
        return (Conflict){after, cell->atomic, cell->atomic_pc, cell->atomic_block};
    if (strong) return (Conflict){.detail = DETAIL_NONE};
    if (access != ACCESS_LOAD && cell->reader_block && cell->read_bytes & part &&
        !(cell->reader_block == block->number &&
          (cell->reader == warp->first_thread + (uint32_t)lane ||
           ((cell->reader == (SEVERAL_LANES | number) || cell->reader / LANES == number) &&
            read_alone(cell->byte_readers, cell->read_bytes, part, lane)))) &&
        !ordered(block, warp, lane, cell->reader_block, cell->reader, cell->reader_time))
        return (Conflict){DETAIL_WRITE_AFTER_READ, cell->reader, cell->reader_pc,
                          cell->reader_block};
    return (Conflict){.detail = DETAIL_NONE};
}

/* Loads of whole words that nobody wrote in this launch: only the readers are noted. Returns the
   lanes that need a closer look. */
static LaneMask quick_loads(Block *block, const Warp *warp, int pc, LaneMask lanes,
                            const uint64_t *addresses, int words) {
    Machine *machine = block->machine;
    LaneMask noted = readers_to_note(lanes, addresses), left = 0;
    FOR_EACH_LANE(lane, noted) {
        uint64_t granule = (addresses[lane] - machine->arena_base) >> 2;
        for (int word = 0; word < words; word++, granule++) {
            GlobalShadow *cell = &machine->shadow[granule];
            if (cell->writer_block | cell->atomic_block ||
                (machine->initialised && machine->initialised[granule] != 15)) {
                left |= noted == lanes ? UINT32_C(1) << lane : lanes;
                break;
            }
            if (!cell->reader_block) {
                cell->reader_block = block->number, cell->reader_time = machine->clock;
                cell->reader = (uint16_t)(warp->first_thread + (uint32_t)lane);
                cell->reader_pc = short_pc(pc), cell->read_bytes = 15;
                memset(cell->byte_readers, lane, 4);
            } else if (cell->reader_block == MANY_BLOCKS) {
                cell->read_bytes = 15;
            } else {
                note_reader(block, warp, cell, lane, 15, pc);
            }
        }
    }
    return left;
}

/* The checks that need memory of earlier accesses. `values` are the bytes about to be stored. Lanes
   of one store are all checked before any is noted: memory.c compares what they store. */
void global_shadow(Block *block, const Warp *warp, const Instruction *row, int pc, LaneMask lanes,
                   const uint64_t *addresses, int bytes, Access access,
                   const uint8_t (*values)[32]) {
    Machine *machine = block->machine;
    bool strong = row->flags & (FLAG_STRONG | FLAG_GUESS), narrow = row->flags & FLAG_NARROW;
    bool looks = is_look(row, access);
    /* Of a partial copy each lane reads bytes of its own number: not whole words for all. */
    if (access == ACCESS_LOAD && !strong && !(bytes & 3) && !block->lane_bytes) {
        lanes = quick_loads(block, warp, pc, lanes, addresses, bytes / 4);
        if (!lanes) return;
    }
    for (int pass = 0; pass < (access == ACCESS_STORE ? 2 : 1); pass++) {
        FOR_EACH_LANE(lane, lanes) {
            uint64_t address = addresses[lane], offset = address - machine->arena_base;
            int own = block->lane_bytes ? block->lane_bytes[lane] : bytes;
            for (int done = 0; done < own;) { /* one granule of four bytes at a time */
                int start = (int)((offset + (uint64_t)done) & 3);
                int count = 4 - start < own - done ? 4 - start : own - done;
                uint8_t part = (uint8_t)(((1 << count) - 1) << start);
                uint64_t granule = (offset + (uint64_t)done) >> 2, here = address + (uint64_t)done;
                uint8_t *known = machine->initialised ? &machine->initialised[granule] : NULL;
                GlobalShadow *cell = &machine->shadow[granule];
                done += count;
                if (pass) {
                    note_writer(block, warp, cell, lane, part, pc, strong);
                    continue;
                }
                if (known && access != ACCESS_STORE && bytes_read(row, done - count, part) & ~*known &&
                    !copies_padding(machine->initialised, machine->arena_size / 4, row, offset, own))
                    report(block, KIND_UNINITIALIZED_READ, pc, warp, lane, here, SPACE_GLOBAL,
                           DETAIL_READ, -1, -1);
                if (known && access != ACCESS_LOAD) *known |= part;
                bool touched = cell->writer_block || cell->atomic_block ||
                               (access != ACCESS_LOAD && cell->reader_block);
                if (touched && !(row->flags & FLAG_GUESS)) {
                    Conflict found = find_conflict(block, warp, cell, lane, part, access, strong,
                                                   narrow);
                    if (found.detail != DETAIL_NONE) {
                        bool same = access == ACCESS_STORE &&
                                    !memcmp((const void *)here, values[lane] + done - count,
                                            (size_t)count);
                        int64_t index = found.other_block == MANY_BLOCKS
                                            ? -1
                                            : machine->blocks[found.other_block - 1];
                        report_race(block, same, pc, warp, lane, here, SPACE_GLOBAL, found.detail,
                                    index, found.other, found.other_pc);
                    }
                }
                if (looks && cell->atomic_block &&
                    !(cell->atomic_block == block->number &&
                      cell->atomic == warp->first_thread + (uint32_t)lane))
                    ((Warp *)warp)->heard[lane] = machine->clock;
                if (access == ACCESS_LOAD && !strong)
                    note_reader(block, warp, cell, lane, part, pc);
                else if (access == ACCESS_ATOMIC)
                    note_writer(block, warp, cell, lane, part, pc, true);
            }
        }
    }
}
