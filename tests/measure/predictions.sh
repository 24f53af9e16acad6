#!/bin/sh
# What simulation predicts on this machine beside what runs take: both passes on ranks that are threads of one process,
# fewer than cores and more. Calibrates first and beside every row; four to five minutes on two cores. Not a test: times
# depend on what else the machine does.
#
#     tests/measure/predictions.sh build/bin/distattn [OPTIONS OF distattn bench]
set -eu
binary=$1
shift
exec "$binary" bench --calibrate --ranks 1,2,4,8 --schedule ring,zigzag-ring,balanced,mesh:1x1x2,mesh:1x2x2,mesh:1x2x4 \
  --seq 8K --heads 4 --head-dim 64 --backward -n 10 -w 1 "$@"
