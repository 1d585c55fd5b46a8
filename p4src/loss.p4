// The drop simulator: loses packets at random, per port and direction, with a probability that the controller sets.

#ifndef LOSS_P4
#define LOSS_P4

#include "headers.p4"

// `port` is where the packet came in or goes out. Sets `lost`.
control Loss(in port_t port, out bool lost) {
    bit<32> threshold;

    // Lose a packet with probability `share` / 2**32.
    action lose(bit<32> share) {
        threshold = share;
    }

    action keep() {
        threshold = 0;
    }

    table probability {
        key = { port: exact @name("port"); }
        actions = { lose; keep; }
        const default_action = keep();
        size = 512;
    }

    apply {
        lost = false;
        probability.apply();
        if (threshold != 0) {
            bit<32> dice;
            random<bit<32>>(dice, 0, 0xFFFFFFFF);
            lost = dice < threshold;
        }
    }
}

#endif
