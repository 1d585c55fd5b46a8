// SPDX-License-Identifier: Apache-2.0
//
// Where the state of cells lies: in v1model's registers. Slot decides; what it needs is read before and written after.

#ifndef CELLS_P4
#define CELLS_P4

#include "headers.p4"
#include "slot.p4"

control Cells(inout headers_t hdr, inout metadata_t meta) {
    register<tag_t>(CELLS) tags;
    register<bitmap_t>(CELLS) seen_members;
    register<outcome_t>(CELLS) outcomes;

    Slot() slot;

    cell_t cell;

    apply {
        // Nothing else says where a slot's state lies, so that frames of different slots cannot meet in a cell: switches
        // with several cores, or pipelines, share slots out on the strength of it.
        cell.index = (hdr.agg.slot << 1) | (hdr.agg.number & 1);
        tags.read(cell.tag, cell.index);
        seen_members.read(cell.seen, cell.index);
        outcomes.read(cell.outcome, cell.index);
        slot.apply(hdr, meta, cell);
        tags.write(cell.index, cell.tag);
        seen_members.write(cell.index, cell.seen);
        outcomes.write(cell.index, cell.outcome);
    }
}

#endif
