/* The slot machine: one slot of the switch, the workers that use it, the controller that hands it over, and a network
 * that loses, repeats, overtakes and delays without bound.  docs/verification.md says what is abstracted and why.
 *
 * There are no channels.  All copies of a contribution are the same bytes, so the network is a set: whatever was sent
 * may arrive, any number of times, at any later moment, or never.  One process takes one step at a time; every step
 * changes something and none can be undone, so each run ends, and an end at which somebody still waits is a dead end.
 *
 * Configurations and broken rules are macros; checks/verify/configurations.py lists them. */

#include "data.pml"
#include "slot.pml"
#include "worker.pml"
#include "controller.pml"

/* A copy of contribution `r` of worker `w` may still be on its way: any that was ever sent, or, once the network has
 * lost everything and is reliable from then on, what the worker keeps repeating. */
#define ON_ITS_WAY(i, w, r) (reliable -> REPEATS(i, w, r) : r < SENT(i, w))


/* All copies of one contribution. */
proctype Copies(byte i, w, r) {
end:
    do
    :: d_step { ON_ITS_WAY(i, w, r) && ADMITTED(i) && CHANGES(i, w, r, NUMBER(i, r)) ->
        contribute(i, w, r, NUMBER(i, r), PAYS(i, w, r)) }
#ifdef BREAK_PROBES_WITHOUT_LANES   /* a repeat leaves its lanes out once the switch has said `held` */
    :: d_step { r < SENT(i, w) && ADMITTED(i) && CHANGES(i, w, r, NUMBER(i, r)) ->
        contribute(i, w, r, NUMBER(i, r), 0) }
#endif
    od
}

proctype Worker(byte i, w) {
end:
    do
    :: d_step { CAN_CONTRIBUTE(i, w) -> begin(i, w) }
    :: d_step { HAS_RESULT(i, w) -> receive(i, w) }
    :: d_step { CAN_LEAVE(i, w) -> left[AT(i, w)] = 1 }
    :: d_step { CAN_BE_TOLD(i, w) -> tell(i, w) }
    :: d_step { IS_ACKNOWLEDGED(i, w) -> outstanding[AT(i, w)] = 0 }
    od
}

proctype Network() {
end:
    do
    :: d_step { clears < CLEARS && !reliable -> clear() }
    :: d_step { !reliable -> reliable = 1; lose_results() }
    od
}

init {
    byte i, w, r;
    choose_data();
    atomic {
        prepare();
        do
        :: i < INCARNATIONS ->
            do
            :: w < MEMBERS(i) ->
                do
                :: r < total[i] -> run Copies(i, w, r); r++
                :: else -> break
                od;
                r = 0;
                run Worker(i, w);
                w++
            :: else -> break
            od;
            w = 0;
            i++
        :: else -> break
        od;
        i = 0;
        run Network();
#ifdef HAND_OVER
        run Controller()
#endif
    }
    /* The one end that is no dead end. */
    IS_OVER
}
