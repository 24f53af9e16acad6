/** Attention between threads of one process whose passes are queued, from C. */

#include "own_attention.h"

static distattn_status queue_and_wait(distattn_attention* attention, const distattn_tensors* tensors) {
  distattn_event* event = NULL;
  distattn_status status = distattn_forward_async(attention, tensors, NULL, &event);
  /* ... whatever does not need the result */
  if (status == DISTATTN_OK) status = distattn_event_wait(event);
  distattn_event_free(event);
  return status;
}

static distattn_status attend_queued(void* user, distattn_comm* comm) {
  return attend_with(queue_and_wait, (const char*)user, comm);
}

int main(void) {
  char schedule[] = "zigzag-ring";
  const distattn_status status = distattn_run_ranks(3, attend_queued, schedule);
  if (status != DISTATTN_OK) fprintf(stderr, "distattn %s: %s\n", distattn_version(), distattn_message());
  return status;
}
