// SPDX-License-Identifier: Apache-2.0
//
// The drop simulator: loses packets at random, per port and direction, with a probability that the controller sets.

#ifndef LOSS_P4
#define LOSS_P4

#include "headers.p4"

// `port` is where the packet came in or goes out. Sets meta.reason to `lost` when it is lost there.
control Loss(inout metadata_t meta, in port_t port)(reason_t lost) {
    // Lose a packet with probability `share` / 2**32.
    action lose(bit<32> share) {
        random<bit<32>>(meta.dice, 0, 0xFFFFFFFF);
        if (meta.dice < share) {
            meta.reason = lost;
        }
    }

    action keep() {}

    table probability {
        key = { port: exact @name("port"); }
        actions = { lose; keep; }
        const default_action = keep();
        size = LOSS_ENTRIES;
    }

    apply {
        probability.apply();
    }
}

#endif
