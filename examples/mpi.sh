#!/bin/sh
# The digits demo under mpirun, which tells each process its rank: sh examples/mpi.sh [workers] [arguments of digits.py]
set -eu
workers=${1:-4}
[ $# -eq 0 ] || shift
place=$(mktemp -d)
export SWITCHSUM_CONTROLLER="unix:$place/controller" SWITCHSUM_JOB=mpi SWITCHSUM_LINK="shm:$place/links"

switchsum switch --listen "unix:$place/p4runtime" --shm "$place/links" & switch=$!
switchsum controller --listen "$SWITCHSUM_CONTROLLER" --switch "unix:$place/p4runtime" & controller=$!
trap 'kill $switch $controller; wait; rm -rf "$place"' EXIT
until switchsum job create "$SWITCHSUM_JOB" --workers "$workers" --wait 10; do
  [ $? -eq 1 ] # 2: the number of workers is at fault
  kill -0 $switch # ends the script when it has ended
  kill -0 $controller
done
# shellcheck disable=SC2086  # several options
mpirun ${MPIRUN_OPTIONS:-} -n "$workers" python "$(dirname "$0")/digits.py" "$@"
