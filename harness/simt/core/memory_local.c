/* Local memory: reads of what a thread has not written. */
#include "simt.h"

/* Padding is copied with what it pads: only an element of which no byte was written counts. */
void local_shadow(Block *block, const Warp *warp, const Instruction *row, int pc, LaneMask lanes,
                  const uint64_t *addresses, int bytes, Access access) {
    size_t frame = (size_t)block->machine->local_bytes;
    int element = type_bytes(row->type);
    FOR_EACH_LANE(lane, lanes) {
        uint8_t *written = block->local_written + (warp->first_thread + (uint32_t)lane) * frame +
                           addresses[lane];
        for (int done = 0; done < bytes && access != ACCESS_STORE; done += element)
            if (!memchr(written + done, 1, (size_t)element) && !(row->flags & FLAG_UNCOUNTED))
                report(block, KIND_UNINITIALIZED_READ, pc, warp, lane,
                       addresses[lane] + (uint64_t)done, SPACE_LOCAL, DETAIL_READ, -1, -1);
        if (access != ACCESS_LOAD) memset(written, 1, (size_t)bytes);
    }
}
