#pragma once
/// Events of work on a device's streams: what another stream waits for without the host.

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "backends/streams/stream.hpp"
#include "distattn/error.hpp"
#include "distattn/event.hpp"

namespace distattn::backends {

/// What can end the wait for an event early. Thread-safe.
class Watch {
 public:
  virtual ~Watch() = default;
  virtual bool ended() const = 0;
  /// Called again and again while somebody waits: throws why nothing more will come, if so.
  virtual void look() const = 0;
  /// What was waited for has come.
  virtual void over() const {}
};

/// Why a device or a transport has been told to end, seen by all of its events.
class Ending final : public Watch {
 public:
  /// Only the first call counts.
  void end(const Error& error) noexcept;
  bool ended() const override { return ended_.load(std::memory_order_acquire); }
  /// Throws what end() was told, if it was called.
  void look() const override;

 private:
  std::atomic<bool> ended_{false};
  mutable std::mutex mutex_;
  std::optional<Error> error_;
};

/// A moment on the device's clock and the same on the host's, which may become known when the run has ended.
struct Origin {
  std::shared_ptr<const Mark> mark;
  Event::Clock::time_point at;
};

/// Complete when its mark has passed, or with an error when its watch says so.
class StreamEvent : public Event::State {
 public:
  /// `place` names rank and step.
  StreamEvent(std::shared_ptr<const Mark> mark, std::shared_ptr<const Watch> watch,
              std::shared_ptr<const Origin> origin, std::string place)
      : mark_(std::move(mark)), watch_(std::move(watch)), origin_(std::move(origin)), place_(std::move(place)) {}

  bool done() const override;
  void wait() const override;
  Event::Clock::time_point ended_at() const override { return origin_->at + since(*origin_); }
  /// How long after the origin its mark passed.
  Event::Clock::duration since(const Origin& origin) const;
  const Mark& mark() const { return *mark_; }

 private:
  std::shared_ptr<const Mark> mark_;
  std::shared_ptr<const Watch> watch_;
  std::shared_ptr<const Origin> origin_;
  std::string place_;
};

/// Of work with the caller's tensors on `stream`.
class TensorEvent final : public StreamEvent {
 public:
  /// Where its end tells when the pass began on the host's clock, `begin` learns it.
  TensorEvent(Stream& stream, std::shared_ptr<const Watch> watch, std::shared_ptr<const Origin> origin,
              std::string place, std::shared_ptr<Origin> begin = nullptr)
      : StreamEvent(stream.mark(), std::move(watch), std::move(origin), std::move(place)),
        stream_(stream),
        begin_(std::move(begin)) {}

  /// Nothing before it touches them any more when this returns, also when it throws.
  void wait() const override;

 private:
  Stream& stream_;
  const std::shared_ptr<Origin> begin_;
};

/// Lets `stream` wait for all of `events`: for those of its device there, for others here.
void wait_for_all(std::span<const Event> events, Stream& stream);

/// Lets `stream` wait on its device for `event`, or for what a queued pass that it tells of has queued. False, and
/// nothing done, if only the host can wait for that.
bool follow(const Event& event, Stream& stream);

/// Returns when `mark` has passed, asking often at first. Throws what went wrong on the device, or what `watch` does.
void wait_on_host(const Mark& mark, const Watch& watch);

/// When `stream` has come to the present. Asked for every pass: clocks of host and device drift apart.
std::shared_ptr<const Origin> present(Stream& stream, const Watch& watch);

/// Rethrows the exception that is being handled, with `place` in front.
[[noreturn]] void rethrow_at(const std::string& place);

}  // namespace distattn::backends
