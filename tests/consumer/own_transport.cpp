/// A transport that distattn does not know: a board in shared memory where each pair of ranks leaves its messages.

#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <distattn/engine.hpp>
#include <distattn/registry.hpp>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>

#include "against_float64.hpp"

using namespace distattn;

/// Messages of one lane from one rank to another arrive in the order in which they were sent.
class Board {
 public:
  void put(Lane lane, Rank from, Rank to, std::vector<std::byte> message) {
    const std::lock_guard lock(mutex_);
    queues_[{lane, from, to}].push_back(std::move(message));
    changed_.notify_all();
  }
  std::vector<std::byte> take(Lane lane, Rank from, Rank to) {
    std::unique_lock lock(mutex_);
    auto& queue = queues_[{lane, from, to}];
    changed_.wait(lock, [&] { return !queue.empty() || ended_; });
    if (ended_) throw *ended_;
    std::vector<std::byte> message = std::move(queue.front());
    queue.pop_front();
    return message;
  }
  void end(const Error& error) {
    const std::lock_guard lock(mutex_);
    ended_ = error;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::tuple<Lane, Rank, Rank>, std::deque<std::vector<std::byte>>> queues_;
  std::optional<Error> ended_;
};

class BoardTransport final : public Transport {
 public:
  BoardTransport(Board& board, Rank rank, int size) : board_(board), rank_(rank), size_(size) {}
  std::string_view name() const override { return "board"; }
  Rank rank() const override { return rank_; }
  int size() const override { return size_; }
  bool reaches(MemorySpace space) const override { return space == MemorySpace::host; }
  void abort(const Error& error) noexcept override { board_.end(error); }

  Event submit(const Step& step, BufferTable& buffers, std::span<const Event> after) override {
    try {
      for (const Event& event : after) event.wait();
      for (const Op& op : step.ops) {
        if (const auto* send = std::get_if<Send>(&op)) {
          for (const auto& part : buffers.parts(send->source)) {
            board_.put(step.lane, rank_, send->to, {part.data, part.data + part.shape.bytes});
          }
        }
      }
      for (const Op& op : step.ops) {
        if (const auto* receive = std::get_if<Recv>(&op)) {
          for (const auto& part : buffers.parts(receive->into)) {
            const std::vector<std::byte> message = board_.take(step.lane, receive->from, rank_);
            std::memcpy(part.data, message.data(), part.shape.bytes);
          }
        }
      }
      return {};
    } catch (...) {
      return Event::failed(std::make_exception_ptr(error_at(rank_, step, std::current_exception())));
    }
  }

 private:
  Board& board_;
  Rank rank_;
  int size_;
};

int main() {
  constexpr int ranks = 4;
  const Problem problem{.seq_q = 200, .seq_kv = 200, .heads = 4, .kv_heads = 4, .head_dim = 16, .value_dim = 16};
  Board board;
  std::vector<double> errors(ranks, 1);
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      BoardTransport transport(board, rank, ranks);
      const auto device = make_device("reference", {.threads = 1, .local_ranks = ranks});
      Attention attention(problem, {.schedule = "balanced"}, *device, transport);
      errors[static_cast<std::size_t>(rank)] = consumer::worst_error(attention, rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double worst = *std::max_element(errors.begin(), errors.end());
  std::printf("balanced over a board: error %.2g\n", worst);
  return worst < 1e-5 ? 0 : 1;
}
