/** What the C examples share: one rank's attention on tensors of its own making. */
#pragma once

#include <distattn/distattn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { heads = 4, kv_heads = 2, head_dim = 32, tokens = 500 };

static float* new_tensor(int64_t rows, int64_t width) { return (float*)malloc(sizeof(float) * (size_t)(rows * width)); }

static distattn_tensor describe(float* data, int64_t* shape) {
  distattn_tensor tensor = {0};
  tensor.data = data;
  tensor.device.device_type = 1; /* host */
  tensor.ndim = 3;
  tensor.dtype.code = 2; /* floating point */
  tensor.dtype.bits = 32;
  tensor.dtype.lanes = 1;
  tensor.shape = shape;
  return tensor;
}

/** The pass, waited for in one way or another. */
typedef distattn_status (*forward_call)(distattn_attention* attention, const distattn_tensors* tensors);

/**
 * All keys are alike, so each query takes the mean of the values that it sees: with v = position / tokens, token p
 * gets half of its own.
 */
static distattn_status attend_with(forward_call forward, const char* schedule, distattn_comm* comm) {
  distattn_problem problem = DISTATTN_PROBLEM_INIT;
  distattn_options options = DISTATTN_OPTIONS_INIT;
  distattn_attention* attention = NULL;
  distattn_status status;
  problem.seq_q = problem.seq_kv = tokens;
  problem.heads = heads;
  problem.kv_heads = kv_heads;
  problem.head_dim = head_dim;
  options.schedule = schedule;
  status = distattn_attention_create(&problem, &options, comm, &attention);
  if (status != DISTATTN_OK) return status;

  int64_t mine = distattn_attention_tokens(attention, DISTATTN_QUERIES);
  int64_t* positions = (int64_t*)malloc(sizeof(int64_t) * (size_t)(mine + 1));
  status = distattn_attention_positions(attention, DISTATTN_QUERIES, positions);

  int64_t q_shape[] = {mine, heads, head_dim}, kv_shape[] = {mine, kv_heads, head_dim};
  int64_t lse_shape[] = {1, heads, mine};
  float* q = new_tensor(mine, heads * head_dim);
  float* k = new_tensor(mine, kv_heads * head_dim);
  float* v = new_tensor(mine, kv_heads * head_dim);
  float* o = new_tensor(mine, heads * head_dim);
  float* lse = new_tensor(mine, heads);
  for (int64_t i = 0; i < mine * heads * head_dim; ++i) q[i] = 1;
  for (int64_t i = 0; i < mine * kv_heads * head_dim; ++i) {
    k[i] = 1;
    v[i] = (float)positions[i / (kv_heads * head_dim)] / tokens;
  }
  distattn_tensor q_tensor = describe(q, q_shape), k_tensor = describe(k, kv_shape), v_tensor = describe(v, kv_shape);
  distattn_tensor o_tensor = describe(o, q_shape), lse_tensor = describe(lse, lse_shape);
  distattn_tensors tensors = DISTATTN_TENSORS_INIT;
  tensors.q = &q_tensor;
  tensors.k = &k_tensor;
  tensors.v = &v_tensor;
  tensors.o = &o_tensor;
  tensors.lse = &lse_tensor;
  if (status == DISTATTN_OK) status = forward(attention, &tensors);

  double worst = 0;
  for (int64_t i = 0; status == DISTATTN_OK && i < mine; ++i) {
    worst = fmax(worst, fabs(o[i * heads * head_dim] - (double)positions[i] / tokens / 2));
  }
  printf("rank %d of %d: %lld tokens, error %.2g\n", (int)distattn_comm_rank(comm), (int)distattn_comm_size(comm),
         (long long)mine, worst);
  free(q);
  free(k);
  free(v);
  free(o);
  free(lse);
  free(positions);
  distattn_attention_free(attention);
  return status != DISTATTN_OK ? status : worst < 1e-5 ? DISTATTN_OK : DISTATTN_INTERRUPTED;
}

static inline distattn_status attend(void* user, distattn_comm* comm) {
  return attend_with(distattn_forward, (const char*)user, comm);
}
