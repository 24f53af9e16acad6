/** Two requests that share nothing but the pages of one cache, served on two threads, from C. */

#include <distattn/distattn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { heads = 4, kv_heads = 2, head_dim = 32, page = 16, pages = 8, requests = 2, pages_a_request = 4 };

static distattn_tensor tensor_of(float* data, int64_t* shape, int ndim) {
  return (distattn_tensor){.data = data,
                           .device = {.device_type = 1}, /* host */
                           .ndim = ndim,
                           .dtype = {.code = 2, .bits = 32, .lanes = 1}, /* floating point */
                           .shape = shape};
}

/* One rank. All keys are alike, so that each query takes the mean of the values that it sees: 0.5. */
static distattn_status serve(void* user, distattn_comm* comm) {
  (void)user;
  distattn_problem problem = DISTATTN_PROBLEM_INIT; /* what all requests have in common */
  problem.seq_kv = 1000;                            /* the longest sequence */
  problem.seq_q = 8;                                /* the most queries of a request */
  problem.heads = heads;
  problem.kv_heads = kv_heads;
  problem.head_dim = head_dim;
  distattn_options options = DISTATTN_OPTIONS_INIT;
  options.threads = 1;
  distattn_serving* serving = NULL;
  distattn_status status = distattn_serving_create(&problem, page, &options, comm, &serving);
  if (status != DISTATTN_OK) return status;

  float* const cache = malloc(sizeof(float) * 2 * pages * page * kv_heads * head_dim);
  float q[heads * head_dim], o[heads * head_dim];
  for (int i = 0; cache != NULL && i < 2 * pages * page * kv_heads * head_dim; ++i) cache[i] = 0.5F;
  for (int i = 0; i < heads * head_dim; ++i) q[i] = 1;
  int64_t cache_shape[] = {pages, page, kv_heads, head_dim}, shape[] = {1, heads, head_dim};
  const distattn_tensor k = tensor_of(cache, cache_shape, 4);
  const distattn_tensor v = tensor_of(cache + pages * page * kv_heads * head_dim, cache_shape, 4);
  const distattn_tensor queries = tensor_of(q, shape, 3), results = tensor_of(o, shape, 3);
  const int32_t table[requests * pages_a_request] = {5, 0, 7, -1, 2, -1, -1, -1}; /* -1: not needed yet */

  double worst = 0;
  for (int token = 0; status == DISTATTN_OK && token < 3; ++token) { /* each call, both have one more */
    const distattn_request lengths[requests] = {{.keys = 70 + token, .queries = 1, .owner = 0},
                                                {.keys = 3 + token, .queries = 1, .owner = 1}};
    distattn_serving_call call = DISTATTN_SERVING_CALL_INIT;
    call.requests = lengths, call.requests_count = requests;
    call.q = &queries, call.k = &k, call.v = &v, call.o = &results;
    call.pages = table, call.pages_count = requests * pages_a_request, call.pages_a_request = pages_a_request;
    status = distattn_serve(serving, &call);
    for (int i = 0; i < heads * head_dim; ++i) worst = fmax(worst, fabs(o[i] - 0.5));
  }
  printf("rank %d stores %lld of 72 tokens, error %.1g\n", (int)distattn_comm_rank(comm),
         (long long)distattn_serving_stored(serving, 72), worst);
  free(cache);
  distattn_serving_free(serving);
  return status != DISTATTN_OK || worst < 1e-5 ? status : DISTATTN_PEER;
}

int main(void) {
  const distattn_status status = distattn_run_ranks(2, serve, NULL);
  if (status != DISTATTN_OK) fprintf(stderr, "distattn %s: %s\n", distattn_version(), distattn_message());
  return status;
}
