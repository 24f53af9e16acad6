#pragma once
/// What a test tells the stand-in of NCCL beside NCCL's own calls.

extern "C" {
/// The messages of the `group`-th group from now on of rank `rank` of its communicator, counted from 1, never arrive;
/// its communicator reports an error, as when a link breaks, unless `silent`. 0: all arrive.
void standin_fail(int rank, int group, bool silent);
/// Rank `rank` cannot make a communicator from now on; -1: all can.
void standin_refuse(int rank);
/// Communicators that have been aborted so far.
int standin_aborts();
/// All-gathers of communicators of `ranks` ranks so far, counted once a rank.
int standin_gathers(int ranks);
}
