/** The steps of docs/using-c.md: a problem, its plan, and both passes of one attention on three ranks. */

#include <distattn/distattn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { heads = 4, kv_heads = 2, head_dim = 32, tokens = 500 };

/* A dense fp32 tensor [tokens, heads, dim] in host memory, every element `value`. */
typedef struct own_tensor {
  int64_t shape[3];
  distattn_tensor view;
} own_tensor;

static void make_tensor(own_tensor* tensor, int64_t n0, int64_t n1, int64_t n2, float value) {
  const int64_t count = n0 * n1 * n2;
  float* data = malloc(sizeof(float) * (size_t)count);
  for (int64_t i = 0; data != NULL && i < count; ++i) data[i] = value;
  *tensor = (own_tensor){.shape = {n0, n1, n2},
                         .view = {.data = data,
                                  .device = {.device_type = 1}, /* host */
                                  .ndim = 3,
                                  .dtype = {.code = 2, .bits = 32, .lanes = 1}}}; /* floating point */
  tensor->view.shape = tensor->shape;
}

/* One rank. All keys are alike, so that each query takes the mean of the values that it sees: 0.5. */
static distattn_status attend(void* user, distattn_comm* comm) {
  const distattn_problem* problem = user;
  distattn_options options = DISTATTN_OPTIONS_INIT;
  options.schedule = "zigzag-ring";
  options.backward = 1;
  distattn_attention* attention = NULL;
  distattn_status status = distattn_attention_create(problem, &options, comm, &attention);
  if (status != DISTATTN_OK) return status;

  /* This rank's part of the sequence. distattn_attention_positions() says which tokens they are. */
  const int64_t queries = distattn_attention_tokens(attention, DISTATTN_QUERIES);
  const int64_t keys = distattn_attention_tokens(attention, DISTATTN_KEYS);
  own_tensor q, k, v, o, lse, d_o, dq, dk, dv;
  make_tensor(&q, queries, heads, head_dim, 1);
  make_tensor(&k, keys, kv_heads, head_dim, 1);
  make_tensor(&v, keys, kv_heads, head_dim, 0.5F);
  make_tensor(&d_o, queries, heads, head_dim, 1);
  make_tensor(&o, queries, heads, head_dim, 0);
  make_tensor(&lse, 1, heads, queries, 0);
  make_tensor(&dq, queries, heads, head_dim, 0);
  make_tensor(&dk, keys, kv_heads, head_dim, 0);
  make_tensor(&dv, keys, kv_heads, head_dim, 0);

  distattn_tensors tensors = DISTATTN_TENSORS_INIT;
  tensors.q = &q.view, tensors.k = &k.view, tensors.v = &v.view;
  tensors.o = &o.view, tensors.lse = &lse.view;
  status = distattn_forward(attention, &tensors);
  tensors.d_o = &d_o.view;
  tensors.dq = &dq.view, tensors.dk = &dk.view, tensors.dv = &dv.view;
  if (status == DISTATTN_OK) status = distattn_backward(attention, &tensors); /* reads o and lse */

  double worst = 0;
  for (int64_t i = 0; status == DISTATTN_OK && i < queries * heads * head_dim; ++i) {
    worst = fmax(worst, fabs(((const float*)o.view.data)[i] - 0.5));
  }
  printf("rank %d of %d: %lld tokens, error %.1g\n", (int)distattn_comm_rank(comm), (int)distattn_comm_size(comm),
         (long long)queries, worst);
  own_tensor* const all[] = {&q, &k, &v, &o, &lse, &d_o, &dq, &dk, &dv};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) free(all[i]->view.data);
  distattn_attention_free(attention);
  return status != DISTATTN_OK || worst < 1e-5 ? status : DISTATTN_PEER;
}

int main(void) {
  distattn_problem problem = DISTATTN_PROBLEM_INIT; /* one query, one key, fp32, causal */
  problem.seq_q = problem.seq_kv = tokens;
  problem.heads = heads;
  problem.kv_heads = kv_heads;
  problem.head_dim = head_dim;

  /* What a schedule costs, without tensors: the JSON that `distattn plan --json` prints. */
  char* plan = NULL;
  distattn_options options = DISTATTN_OPTIONS_INIT;
  options.schedule = "zigzag-ring";
  distattn_status status = distattn_plan_json(&problem, &options, 3, "dgx-h100x8", &plan);
  if (status == DISTATTN_OK) printf("planned: %.60s...\n", plan);
  distattn_text_free(plan);

  if (status == DISTATTN_OK) status = distattn_run_ranks(3, attend, &problem);
  if (status != DISTATTN_OK) fprintf(stderr, "distattn %s: %s\n", distattn_version(), distattn_message());
  return status;
}
