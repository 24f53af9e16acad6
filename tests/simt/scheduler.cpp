#include "simt/scheduler.hpp"

#include <bit>
#include <cstring>

#include "simt/error.hpp"

namespace simt {

void Scheduler::prepare(dim3 shape) {
  count_ = alive_ = shape.count();
  while (threads_.size() < count_) threads_.push_back(std::make_unique<Thread>());
  warps_.assign((count_ + warp_size - 1) / warp_size, {});
  constexpr std::uint32_t drifts[] = {0, 2, 32, 256};
  drift_ = drifts[random_.below(4)];
  uniform_ = random_.one_in(4);
  failure_ = nullptr;
  for (unsigned rank = 0; rank < count_; ++rank) {
    Thread& thread = *threads_[rank];
    thread.fiber.restart(&Scheduler::thread_main, this);
    thread.index = dim3(rank % shape.x, rank / shape.x % shape.y, rank / shape.x / shape.y);
    thread.rank = rank;
    thread.warp = rank / warp_size;
    thread.lane = rank % warp_size;
    thread.waits_for = "start";
    thread.ended = false;
    thread.seen = {};
    thread.copies.clear();
    thread.acquired_maps.clear();
    thread.committed_groups = 0;
    thread.votes = 0;
    wake(thread);
  }
  for (Warp& warp : warps_) warp.priority = random_.next();
}

void Scheduler::thread_main(void* self) {
  auto& scheduler = *static_cast<Scheduler*>(self);
  Thread& me = *scheduler.current_;
  try {
    (*scheduler.body_)();
  } catch (...) {
    if (scheduler.failure_ == nullptr) scheduler.failure_ = std::current_exception();
  }
  me.ended = true;
  scheduler.warps_[me.warp].runnable &= ~(1u << me.lane);
  --scheduler.alive_;
}

Scheduler::Warp* Scheduler::choose_warp() {
  Warp* chosen = nullptr;
  std::uint32_t candidates = 0;
  for (Warp& warp : warps_) {
    if (warp.runnable == 0) continue;
    if (uniform_ ? random_.one_in(++candidates) : chosen == nullptr || warp.priority > chosen->priority) {
      chosen = &warp;
    }
  }
  return chosen;
}

void Scheduler::run(dim3 shape, const std::function<void()>& body, const std::function<bool()>& on_idle) {
  body_ = &body;
  prepare(shape);
  while (alive_ > 0 && failure_ == nullptr) {
    Warp* const warp = choose_warp();
    if (warp == nullptr) {
      if (on_idle()) continue;
      throw Error("deadlock:" + who_waits_for_what());
    }
    const int turn = static_cast<int>(random_.below(warp_size));
    const auto lane = static_cast<unsigned>(std::countr_zero(std::rotr(warp->runnable, turn)) + turn) % warp_size;
    current_ = threads_[static_cast<std::size_t>(warp - warps_.data()) * warp_size + lane].get();
    current_->fiber.resume();
  }
  if (failure_ != nullptr) std::rethrow_exception(failure_);
}

void Scheduler::sleep(const char* waits_for) {
  Thread& me = *current_;
  me.waits_for = waits_for;
  warps_[me.warp].runnable &= ~(1u << me.lane);
  me.fiber.pause();
}

void Scheduler::wake(const Thread& thread) { warps_[thread.warp].runnable |= 1u << thread.lane; }

void Scheduler::perhaps_yield() {
  if (random_.below(1024) < drift_) warps_[current_->warp].priority = random_.next();
}

void Scheduler::reshuffle() {
  if (random_.one_in(2)) warps_[current_->warp].priority = random_.next();
}

std::string Scheduler::who_waits_for_what() const {
  const auto label = [&](unsigned rank) { return threads_[rank]->ended ? "exit" : threads_[rank]->waits_for; };
  std::string report;
  unsigned first = 0;
  for (unsigned rank = 1; rank <= count_; ++rank) {
    if (rank < count_ && std::strcmp(label(rank), label(first)) == 0) continue;
    report += " threads " + std::to_string(first) + "-" + std::to_string(rank - 1) + " at " + label(first) + ";";
    first = rank;
  }
  return report;
}

}  // namespace simt
