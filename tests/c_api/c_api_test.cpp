/// The C API: what it computes, and what it says when it is used wrongly.

#include <atomic>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "catch.hpp"
#include "distattn/convert.hpp"
#include "distattn/distattn.h"
#include "distattn/oracle.hpp"
#include "distattn/random.hpp"
#include "distattn/schedule.hpp"
#include "distattn/tolerance.hpp"

namespace {

using distattn::DType;
using distattn::RandomTensor;

constexpr int heads = 4, kv_heads = 2, dim = 16;
constexpr std::int64_t tokens = 53;

distattn_problem small_problem() {
  distattn_problem problem = DISTATTN_PROBLEM_INIT;
  problem.seq_q = problem.seq_kv = tokens;
  problem.heads = heads;
  problem.kv_heads = kv_heads;
  problem.head_dim = dim;
  return problem;
}

distattn_options options_for(const char* schedule) {
  distattn_options options = DISTATTN_OPTIONS_INIT;
  options.schedule = schedule;
  options.backward = 1;
  options.backend = "reference";
  options.threads = 1;
  return options;
}

/// A dense fp32 tensor of any rank, described for the C API.
struct Tensor {
  explicit Tensor(std::vector<std::int64_t> extents) : shape(std::move(extents)) {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    values.resize(static_cast<std::size_t>(count));
    tensor.data = values.data();
    tensor.device.device_type = 1;
    tensor.ndim = static_cast<std::int32_t>(shape.size());
    tensor.dtype = {2, 32, 1};
    tensor.shape = shape.data();
  }
  std::vector<std::int64_t> shape;
  std::vector<float> values;
  distattn_tensor tensor{};
};

/// Rows of a whole random tensor at the given positions.
Tensor rows(RandomTensor which, const std::vector<std::int64_t>& positions, int head_count) {
  Tensor result({static_cast<std::int64_t>(positions.size()), head_count, dim});
  for (std::size_t i = 0; i < positions.size(); ++i) {
    distattn::fill_normal(1, which, positions[i] * head_count * dim, head_count * dim, DType::fp32,
                          reinterpret_cast<std::byte*>(result.values.data() + i * head_count * dim));
  }
  return result;
}

std::vector<std::int64_t> whole() {
  std::vector<std::int64_t> positions(tokens);
  for (std::int64_t i = 0; i < tokens; ++i) positions[static_cast<std::size_t>(i)] = i;
  return positions;
}

distattn::ConstTensorView view(const Tensor& tensor) {
  return distattn::dense_view(reinterpret_cast<const std::byte*>(tensor.values.data()), DType::fp32, 1, tensor.shape[0],
                              tensor.shape[1], tensor.shape[2]);
}

const distattn::ExactResult& exact() {
  static const distattn::ExactResult result = [] {
    distattn::Problem problem;
    problem.seq_q = problem.seq_kv = tokens;
    problem.heads = heads;
    problem.kv_heads = kv_heads;
    problem.head_dim = problem.value_dim = dim;
    problem.mask = distattn::causal_mask();
    return distattn::exact_attention(
        problem, view(rows(RandomTensor::q, whole(), heads)), view(rows(RandomTensor::k, whole(), kv_heads)),
        view(rows(RandomTensor::v, whole(), kv_heads)), view(rows(RandomTensor::d_o, whole(), heads)), 1);
  }();
  return result;
}

/// Largest difference between a rank's rows and the exact ones.
double difference(const Tensor& mine, const std::vector<std::int64_t>& positions, const std::vector<double>& all) {
  const std::size_t row = mine.values.size() / std::max<std::size_t>(1, positions.size());
  double worst = 0;
  for (std::size_t i = 0; i < mine.values.size(); ++i) {
    const std::size_t j = static_cast<std::size_t>(positions[i / row]) * row + i % row;
    worst = std::max(worst, std::abs(mine.values[i] - all[j]));
  }
  return worst;
}

/// What every rank does; user is the options. Returns the status of the first call that fails.
distattn_status attend(void* user, distattn_comm* comm) {
  const distattn_problem problem = small_problem();
  distattn_attention* attention = nullptr;
  distattn_status status =
      distattn_attention_create(&problem, static_cast<const distattn_options*>(user), comm, &attention);
  if (status != DISTATTN_OK) return status;
  std::vector<std::int64_t> queries(static_cast<std::size_t>(distattn_attention_tokens(attention, DISTATTN_QUERIES)));
  std::vector<std::int64_t> keys(static_cast<std::size_t>(distattn_attention_tokens(attention, DISTATTN_KEYS)));
  distattn_attention_positions(attention, DISTATTN_QUERIES, queries.data());
  distattn_attention_positions(attention, DISTATTN_KEYS, keys.data());

  const Tensor q = rows(RandomTensor::q, queries, heads), k = rows(RandomTensor::k, keys, kv_heads),
               v = rows(RandomTensor::v, keys, kv_heads), d_o = rows(RandomTensor::d_o, queries, heads);
  Tensor o(q.shape), lse({heads, q.shape[0]}), dq(q.shape), dk(k.shape), dv(v.shape);
  distattn_tensors tensors = DISTATTN_TENSORS_INIT;
  tensors.q = &q.tensor;
  tensors.k = &k.tensor;
  tensors.v = &v.tensor;
  tensors.o = &o.tensor;
  tensors.lse = &lse.tensor;
  tensors.d_o = &d_o.tensor;
  tensors.dq = &dq.tensor;
  tensors.dk = &dk.tensor;
  tensors.dv = &dv.tensor;
  status = distattn_forward(attention, &tensors);
  if (status == DISTATTN_OK) status = distattn_backward(attention, &tensors);
  distattn_attention_free(attention);
  if (status != DISTATTN_OK) return status;

  const double most = 1e-4;  // Absolute, of values around 1; the equivalence tests judge accuracy.
  const bool good = difference(o, queries, exact().o) < most && difference(dq, queries, exact().dq) < most &&
                    difference(dk, keys, exact().dk) < most && difference(dv, keys, exact().dv) < most;
  return good ? DISTATTN_OK : DISTATTN_INTERRUPTED;
}

/// Mail between ranks that are threads: a queue for each lane and pair.
struct Post {
  explicit Post(int ranks) : size(ranks), queues(static_cast<std::size_t>(2 * ranks * ranks)) {}
  std::deque<std::vector<char>>& queue(int lane, int from, int to) {
    return queues[static_cast<std::size_t>((lane * size + from) * size + to)];
  }
  int size;
  std::mutex mutex;
  std::vector<std::deque<std::vector<char>>> queues;
};

struct PostEnd {
  Post* post;
  int rank;
};

int exchange_by_post(void* user, std::int32_t lane, const distattn_transfer* sends, std::size_t send_count,
                     const distattn_transfer* receives, std::size_t receive_count) {
  const auto& [post, rank] = *static_cast<PostEnd*>(user);
  {
    const std::lock_guard lock(post->mutex);
    for (const distattn_transfer* s = sends; s != sends + send_count; ++s) {
      const char* data = static_cast<const char*>(s->data);
      post->queue(lane, rank, s->peer).emplace_back(data, data + s->bytes);
    }
  }
  for (const distattn_transfer* r = receives; r != receives + receive_count;) {
    std::unique_lock lock(post->mutex);
    auto& queue = post->queue(lane, r->peer, rank);
    if (queue.empty()) {
      lock.unlock();
      std::this_thread::yield();
      continue;
    }
    if (queue.front().size() != r->bytes) return 1;
    std::memcpy(r->data, queue.front().data(), r->bytes);
    queue.pop_front();
    ++r;
  }
  return 0;
}

std::string message() { return distattn_message(); }

}  // namespace

TEST_CASE("attention between threads equals float64") {
  for (const char* schedule : {"zigzag-ring", "ring/burst", "usp:2", "auto"}) {
    distattn_options options = options_for(schedule);
    const distattn_status status = distattn_run_ranks(4, attend, &options);
    INFO(schedule << ": " << distattn_message());
    CHECK(status == DISTATTN_OK);
  }
}

TEST_CASE("attention over a caller's callbacks equals float64") {
  constexpr int ranks = 3;
  Post post(ranks);
  std::atomic<int> good = 0;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      PostEnd end{&post, rank};
      distattn_callbacks callbacks = DISTATTN_CALLBACKS_INIT;
      callbacks.rank = rank;
      callbacks.size = ranks;
      callbacks.user = &end;
      callbacks.exchange = exchange_by_post;
      distattn_comm* comm = nullptr;
      distattn_options options = options_for("balanced");
      if (distattn_comm_from_callbacks(&callbacks, &comm) == DISTATTN_OK && attend(&options, comm) == DISTATTN_OK) {
        ++good;
      }
      distattn_comm_free(comm);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(good == ranks);
}

TEST_CASE("a failed exchange is a peer's failure that names rank and step") {
  distattn_callbacks callbacks = DISTATTN_CALLBACKS_INIT;
  callbacks.size = 2;
  callbacks.exchange = [](void*, std::int32_t, const distattn_transfer*, std::size_t, const distattn_transfer*,
                          std::size_t) { return 7; };
  distattn_comm* comm = nullptr;
  REQUIRE(distattn_comm_from_callbacks(&callbacks, &comm) == DISTATTN_OK);
  CHECK(distattn_comm_size(comm) == 2);
  distattn_options options = options_for("ring");
  CHECK(attend(&options, comm) == DISTATTN_PEER);
  CHECK_THAT(message(), contains_text("rank 0") && contains_text("7"));
  distattn_comm_free(comm);
}

TEST_CASE("misuse is a status and a message, never an exception") {
  distattn_problem problem = small_problem();
  distattn_attention* attention = nullptr;
  struct Try {
    distattn_problem* problem;
    distattn_options options;
    std::string says;
  } attempt{&problem, options_for("ring"), ""};
  const auto create = [&](auto change, const char* says) {
    problem = small_problem();
    attempt.options = options_for("ring");
    change();
    const auto body = [](void* user, distattn_comm* comm) {
      auto& [given, options, text] = *static_cast<Try*>(user);
      distattn_attention* made = nullptr;
      const distattn_status status = distattn_attention_create(given, &options, comm, &made);
      text = distattn_message();
      distattn_attention_free(made);
      return status;
    };
    CHECK(distattn_run_ranks(1, body, &attempt) == DISTATTN_USAGE);
    CHECK_THAT(attempt.says, contains_text(says));
    CHECK_THAT(message(), contains_text(says));
  };
  create([&] { problem.struct_size = 4; }, "struct_size");
  create([&] { problem.struct_size = sizeof(problem) + 8; }, "struct_size");
  create([&] { problem.heads = 3; }, "heads");
  create([&] { problem.dtype = static_cast<distattn_dtype>(9); }, "dtype");
  create([&] { attempt.options.schedule = "spiral"; }, "spiral");
  create([&] { attempt.options.backend = "abacus"; }, "abacus");
  create([&] { attempt.options.mode = static_cast<distattn_mode>(8); }, "mode");

  CHECK(distattn_attention_create(&problem, nullptr, nullptr, &attention) == DISTATTN_USAGE);
  CHECK_THAT(message(), contains_text("comm is null"));
  CHECK(distattn_forward(nullptr, nullptr) == DISTATTN_USAGE);
  CHECK(distattn_run_ranks(0, attend, nullptr) == DISTATTN_USAGE);
  CHECK(distattn_run_ranks(1, nullptr, nullptr) == DISTATTN_USAGE);
  distattn_comm* comm = nullptr;
  distattn_callbacks callbacks = DISTATTN_CALLBACKS_INIT;
  CHECK(distattn_comm_from_callbacks(&callbacks, &comm) == DISTATTN_USAGE);
  CHECK_THAT(message(), contains_text("exchange is null"));
}

TEST_CASE("tensors that are not the rank's shard are refused by name") {
  const auto body = [](void*, distattn_comm* comm) {
    const distattn_problem problem = small_problem();
    distattn_options options = options_for("ring");
    options.backward = 0;
    distattn_attention* attention = nullptr;
    REQUIRE(distattn_attention_create(&problem, &options, comm, &attention) == DISTATTN_OK);
    Tensor q({tokens, heads, dim}), k({tokens, kv_heads, dim}), v({tokens - 1, kv_heads, dim}), o(q.shape),
        lse({heads, tokens});
    distattn_tensors tensors = DISTATTN_TENSORS_INIT;
    tensors.q = &q.tensor;
    tensors.k = &k.tensor;
    tensors.v = &v.tensor;
    tensors.o = &o.tensor;
    tensors.lse = &lse.tensor;
    const auto refused = [&](const char* name) {
      CHECK(distattn_forward(attention, &tensors) == DISTATTN_USAGE);
      CHECK_THAT(message(), contains_text(name));
    };
    refused("v is");
    v.tensor.dtype.bits = 8;
    refused("tensor v has DLPack type");
    v.tensor.dtype.bits = 32;
    v.tensor.device.device_type = 99;
    refused("device 99");
    v.tensor.device.device_type = 1;
    v.tensor.ndim = 2;
    refused("2 dimensions");
    CHECK(distattn_backward(attention, &tensors) == DISTATTN_USAGE);
    CHECK_THAT(message(), contains_text("options.backward"));
    distattn_attention_free(attention);
    return DISTATTN_OK;
  };
  CHECK(distattn_run_ranks(1, body, nullptr) == DISTATTN_OK);
}

TEST_CASE("a caller of an older header keeps its meaning") {
  distattn_options options = options_for("ring");
  options.struct_size = offsetof(distattn_options, threads);
  options.threads = -7;
  CHECK(distattn_run_ranks(2, attend, &options) == DISTATTN_OK);
}

TEST_CASE("schedules come as JSON") {
  const auto body = [](void*, distattn_comm* comm) {
    const distattn_problem problem = small_problem();
    const distattn_options options = options_for("zigzag-ring");
    distattn_attention* attention = nullptr;
    REQUIRE(distattn_attention_create(&problem, &options, comm, &attention) == DISTATTN_OK);
    char* json = nullptr;
    REQUIRE(distattn_schedule_json(attention, DISTATTN_BACKWARD, &json) == DISTATTN_OK);
    const distattn::Schedule schedule = distattn::schedule_from_json(json);
    CHECK(schedule.outline.pass == distattn::Pass::backward);
    CHECK(schedule.ranks.size() == 2);
    distattn_text_free(json);
    distattn_attention_free(attention);
    return DISTATTN_OK;
  };
  CHECK(distattn_run_ranks(2, body, nullptr) == DISTATTN_OK);
}
