// SPDX-License-Identifier: Apache-2.0
//
// What one may want to change before compiling: every size of the program, and the port of the controller.

#ifndef CONFIG_P4
#define CONFIG_P4

// Lanes of 32 bits in one frame: 128, 256 or 2048. p4c's option -DLANES=... chooses.
#ifndef LANES
#define LANES 256
#endif

// Slots that all jobs share.
const bit<32> SLOTS = 1024;

// One bit for each member of a job: its width is the largest world size. The header has room for 32.
typedef bit<32> bitmap_t;

// The port behind which the controller is: BMv2's option --cpu-port.
const bit<9> CPU_PORT = 255;

// A shared slot whose owner has sent nothing for so long is taken for an orphan, in steps of 65,536 microseconds.
const bit<16> ORPHAN_AGE = 256;

// Ranks of a job, as many as the bitmap has bits.
const bit<32> RANKS = 32;

// Jobs whose members' frames are counted by reason: those with the multicast groups below this number.
const bit<32> COUNTED_GROUPS = 64;

// A frame that finds so many others in the queue of its port is marked (ECN). A queue of BMv2 holds 64.
const bit<19> MARK_FRAMES = 16;

// Entries of each table.
const int ADMISSION_ENTRIES = 4096;         // members of all jobs
const int RESULT_ADDRESS_ENTRIES = 4096;    // members of all jobs, and one more for each job
const int UPSTREAM_ENTRIES = 1024;          // trees of all jobs that have a switch above
const int FALLBACK_ENTRIES = 1024;          // trees of all jobs that share slots
const int STATION_ENTRIES = 1024;           // Ethernet addresses
const int LOSS_ENTRIES = 512;               // ports

#endif
