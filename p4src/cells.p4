// SPDX-License-Identifier: Apache-2.0
//
// Where the state of cells lies: in v1model's registers. Slot decides; what it needs is read before and written after.

#ifndef CELLS_P4
#define CELLS_P4

#include "headers.p4"
#include "slot.p4"
#include "owners.p4"

control Cells(inout headers_t hdr, inout metadata_t meta, in bit<48> time) {
    register<tag_t>(CELLS) tags;
    register<bit<64>>(CELLS) seen_members;    // behind who has asked: each access costs BMv2 time
    register<outcome_t>(CELLS) outcomes;
    register<owner_t>(SLOTS) owners;    // of slots that are shared

    Slot() slot;
    Owners() whose;
    Fallback() fallback;

    cell_t cell;
    owner_t owner;
    bool takes;
    bool passes;
    bit<64> seen;

    apply {
        // Nothing else says where a slot's state lies, so that frames of different slots cannot meet in a cell: switches
        // with several cores, or pipelines, share slots out on the strength of it.
        cell.index = (hdr.agg.slot << 1) | (hdr.agg.number & 1);
        passes = false;
        if ((meta.traffic & OF_SHARED_SLOTS) != 0) {
            owners.read(owner, hdr.agg.slot);
            whose.apply(hdr, meta, owner, time[31:16], takes, passes);
            owners.write(hdr.agg.slot, owner);
            if (takes) {
                seen_members.write(hdr.agg.slot << 1, 0);
                seen_members.write((hdr.agg.slot << 1) | 1, 0);
            }
        }
        if (!passes && meta.traffic != TRAFFIC_RELAYED) {
            tags.read(cell.tag, cell.index);
            seen_members.read(seen, cell.index);
            cell.asked = seen[63:32];
            cell.seen = seen[31:0];
            outcomes.read(cell.outcome, cell.index);
            slot.apply(hdr, meta, cell);
            tags.write(cell.index, cell.tag);
            seen_members.write(cell.index, cell.asked ++ cell.seen);
            outcomes.write(cell.index, cell.outcome);
        }
        if (meta.traffic == TRAFFIC_SHARED || meta.traffic == TRAFFIC_PASSED) {
            fallback.apply(hdr, meta, passes);
        }
    }
}

#endif
