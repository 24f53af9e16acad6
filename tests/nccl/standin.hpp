#pragma once
/// What a test tells the stand-in of NCCL beside NCCL's own calls.

extern "C" {
/// The messages of the `group`-th group from now on of rank `rank` of its communicator, counted from 1, never arrive;
/// its communicator reports an error, as when a link breaks, unless `silent`. 0: all arrive.
void standin_fail(int rank, int group, bool silent);
/// Rank `rank` cannot make a communicator from now on; -1: all can.
void standin_refuse(int rank);
/// Whether groups start on a GPU in the order in which they were handed over, whatever their streams wait for, as at
/// first, or when their streams come to them. One at a time in both cases.
void standin_keep_order(bool keep);
/// Communicators that are to end wait from now on, as for a rank that hangs, or end: then it returns when all have.
void standin_hold_ends(bool hold);
/// Communicators that have been aborted so far.
int standin_aborts();
/// All-gathers of communicators of `ranks` ranks so far, counted once a rank.
int standin_gathers(int ranks);
}
