#include "backends/launch/rendezvous.hpp"

#include <poll.h>

#include <algorithm>
#include <list>

#include <fmt/core.h>

#include "backends/launch/handshake.hpp"
#include "distattn/index.hpp"

namespace distattn::backends::launch {
namespace {

constexpr auto handshake_time = std::chrono::seconds(5);
constexpr auto grace = std::chrono::seconds(1);          // past the deadline, for a rank that has found rank 0 at last
constexpr auto last_call = std::chrono::seconds(2);      // for ranks still to come, when it is known that the run fails
constexpr auto choosing_time = std::chrono::seconds(3);  // before a rank with another command will do, or none is left
constexpr std::size_t most_strangers = 256;              // connections that have not proved anything yet

template <class T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

/// Of a choice among runs that begins now.
Clock::time_point end_of_choice(Clock::time_point deadline) {
  const auto now = Clock::now();
  return now + std::min<Clock::duration>(choosing_time, (deadline - now) / 4);
}

/// A connection that has not yet proved who it is.
class Candidate {
 public:
  enum class State : std::uint8_t { pending, failed, claimed };

  explicit Candidate(Socket socket) : socket_(std::move(socket)), deadline_(Clock::now() + handshake_time) {}

  const Socket& socket() const { return socket_; }
  const Claim& claim() const { return claim_; }
  bool late() const { return Clock::now() >= deadline_; }
  Socket take() { return std::move(socket_); }

  /// Reads what has come.
  State advance(const std::string& token) {
    while (true) {
      const std::span<std::byte> wanted = greeted_ ? bytes_of(claim_) : bytes_of(hello_);
      const auto got = receive_some(socket_, wanted.subspan(received_));
      if (!got) return State::failed;
      if (*got == 0) return State::pending;
      received_ += *got;
      if (received_ < wanted.size()) continue;
      received_ = 0;
      if (greeted_)
        return same(claim_.proof, client_proof(token, hello_, nonce_, claim_)) ? State::claimed : State::failed;
      if (!greet(token)) return State::failed;
    }
  }

 private:
  bool greet(const std::string& token) {
    if (hello_.magic != Hello().magic || hello_.protocol != Hello().protocol) return false;
    greeted_ = true;
    nonce_ = draw_nonce();
    Challenge challenge{nonce_, server_proof(token, hello_, nonce_)};
    return send_some(socket_, bytes_of(challenge)) == sizeof challenge;
  }

  Socket socket_;
  Clock::time_point deadline_;
  Hello hello_;
  Nonce nonce_{};
  Claim claim_;
  bool greeted_ = false;
  std::size_t received_ = 0;
};

/// Rank 0 while it waits for the others.
class Admission {
 public:
  Admission(const Socket& listener, int size, const RunKey& run)
      : listener_(listener), size_(size), run_(run), sockets_(index(size)) {}

  Arrivals run(Clock::time_point deadline) {
    takes_others_from_ = end_of_choice(deadline);
    std::optional<Error> failure;
    while (missing() > 0 && Clock::now() < deadline) {
      wait(deadline);
      try {
        admit();
      } catch (const Error& no_more_files) {
        return {std::move(sockets_), no_more_files};
      }
      hear();
      if (failure || !(failure = gone())) continue;
      deadline = std::min(deadline, Clock::now() + last_call);
    }
    if (missing() > 0 && !failure) failure = too_late();
    return {std::move(sockets_), std::move(failure)};
  }

 private:
  int missing() const {
    const auto came = std::count_if(sockets_.begin(), sockets_.end(), [](const Socket& s) { return bool(s); });
    return size_ - 1 - static_cast<int>(came) - gone_;
  }

  void wait(Clock::time_point deadline) {
    entries_.assign(1, {listener_.fd(), POLLIN, 0});
    for (const Candidate& candidate : candidates_) entries_.push_back({candidate.socket().fd(), POLLIN, 0});
    for (const Socket& socket : sockets_) {
      if (socket) entries_.push_back({socket.fd(), POLLRDHUP, 0});  // nobody reads its heartbeats yet
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    ::poll(entries_.data(), entries_.size(), static_cast<int>(std::clamp<std::int64_t>(left, 1, 200)));
  }

  void admit() {
    while (auto socket = accept_from(listener_)) {
      if (candidates_.size() == most_strangers) candidates_.pop_front();
      candidates_.emplace_back(std::move(*socket));
    }
  }

  void hear() {
    for (auto candidate = candidates_.begin(); candidate != candidates_.end();) {
      const Candidate::State state = candidate->advance(run_.token);
      if (state == Candidate::State::claimed) seat(*candidate);
      const bool leaves = state != Candidate::State::pending || candidate->late();
      candidate = leaves ? candidates_.erase(candidate) : std::next(candidate);
    }
  }

  void seat(Candidate& candidate) {
    const std::uint32_t rank = candidate.claim().rank;
    Answer answer{Verdict::accepted, static_cast<std::uint32_t>(size_)};
    if (rank == 0 || rank >= sockets_.size() || candidate.claim().size != answer.size)
      answer.verdict = Verdict::no_such_rank;
    else if (sockets_[rank])
      answer.verdict = Verdict::rank_taken;
    const bool of_another = candidate.claim().command != run_.command;
    // Its own rank 0 may be at another port: one that has the seat, or has not come yet, is the right one here.
    if (of_another && answer.verdict == Verdict::rank_taken) answer.verdict = Verdict::other_command;
    const bool waits = candidate.claim().insists == 0 || Clock::now() < takes_others_from_;
    if (of_another && answer.verdict == Verdict::accepted && waits) answer.verdict = Verdict::other_command;
    if (answer.verdict != Verdict::accepted) {
      turned_away_ = fmt::format(", and has turned away a rank {} of {}{}", rank, candidate.claim().size,
                                 answer.verdict == Verdict::other_command ? " with another command" : "");
    }
    const bool told = send_some(candidate.socket(), bytes_of(answer)) == sizeof answer;
    if (told && answer.verdict == Verdict::accepted) sockets_[rank] = candidate.take();
  }

  std::optional<Error> gone() {
    for (std::size_t rank = 1; rank < sockets_.size(); ++rank) {
      if (sockets_[rank] && closed(sockets_[rank])) {
        sockets_[rank] = Socket();
        ++gone_;
        return Error(
            ErrorKind::peer,
            fmt::format("rank {} is gone (its process ended before the run began): look at its own output", rank));
      }
    }
    return std::nullopt;
  }

  Error too_late() const {
    std::string names;
    for (std::size_t rank = 1; rank < sockets_.size(); ++rank) {
      if (!sockets_[rank]) names += fmt::format("{}rank {}", names.empty() ? "" : ", ", rank);
    }
    return {ErrorKind::timeout,
            fmt::format("{} did not come (rank 0 has waited for the timeout{}): start all {} ranks, each with this "
                        "command, or give a longer timeout",
                        names, turned_away_, size_)};
  }

  const Socket& listener_;
  const int size_;
  const RunKey& run_;
  std::vector<Socket> sockets_;
  Clock::time_point takes_others_from_;  // ranks with its own command may still come until then
  int gone_ = 0;
  std::string turned_away_;  // the last of them
  std::list<Candidate> candidates_;
  std::vector<pollfd> entries_;
};

enum class Attempt : std::uint8_t { failed, other_command, refused, joined };

/// In `refusal`, why rank 0 refuses this rank: that of another run at the next port may not.
Attempt greet_rank_zero(const Socket& socket, const Place& place, const RunKey& run, bool insists,
                        Clock::time_point deadline, std::optional<Error>& refusal) {
  Hello hello;
  hello.nonce = draw_nonce();
  Challenge challenge;
  if (!send_all(socket, bytes_of(hello), deadline) || !receive_all(socket, bytes_of(challenge), deadline))
    return Attempt::failed;
  if (!same(challenge.proof, server_proof(run.token, hello, challenge.nonce))) return Attempt::failed;

  Claim claim{static_cast<std::uint32_t>(place.rank),
              static_cast<std::uint32_t>(place.size),
              insists ? 1u : 0u,
              run.command,
              {}};
  claim.proof = client_proof(run.token, hello, challenge.nonce, claim);
  Answer answer;
  if (!send_all(socket, bytes_of(claim), deadline) || !receive_all(socket, bytes_of(answer), deadline))
    return Attempt::failed;
  if (answer.verdict == Verdict::no_such_rank) {
    refusal.emplace(ErrorKind::peer,
                    fmt::format("rank {} of {} is not expected (rank 0 was started for {} ranks): start "
                                "all ranks alike",
                                place.rank, place.size, answer.size));
    return Attempt::refused;
  }
  if (answer.verdict == Verdict::rank_taken) {
    refusal.emplace(ErrorKind::peer, fmt::format("rank {} has already come (two processes were started as rank {}): "
                                                 "start each once",
                                                 place.rank, place.rank));
    return Attempt::refused;
  }
  return answer.verdict == Verdict::other_command ? Attempt::other_command : Attempt::joined;
}

/// What came of looking for rank 0: each reason once, with the first endpoint that it was found at.
class Findings {
 public:
  void add(const Endpoint& at, const std::string& why) {
    if (why.empty() || text_.find(": " + why) != std::string::npos) return;
    text_ += fmt::format("{}port {} of {}: {}", text_.empty() ? "" : ", ", at.port, at.host, why);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace

Arrivals await_ranks(const Socket& listener, int size, const RunKey& run, Clock::time_point deadline) {
  return Admission(listener, size, run).run(deadline);
}

Socket join_ranks(const Place& place, const std::function<MeetingPoint()>& look, Clock::time_point deadline) {
  std::string found = "which is too short to look once";
  const auto insists_from = end_of_choice(deadline);
  for (Backoff backoff(std::chrono::milliseconds(200)); Clock::now() < deadline; backoff.pause()) {
    const MeetingPoint where = look();
    Findings findings;
    std::optional<Error> refusal;
    const bool insists = Clock::now() >= insists_from;
    auto left = std::ssize(where.endpoints);
    for (const Endpoint& endpoint : where.endpoints) {
      // Who accepts and never answers, as a stopped rank 0 or a stranger, leaves time for the other endpoints.
      const auto now = Clock::now();
      const Clock::duration share = left > 1 ? (deadline - now) / left : deadline + grace - now;
      const auto enough = now + std::min<Clock::duration>(handshake_time, share);
      --left;
      std::string why;
      auto socket = connect_to(endpoint.host, endpoint.port, std::min(deadline, enough), &why);
      if (socket) {
        const Attempt attempt = greet_rank_zero(*socket, place, where.run, insists, enough, refusal);
        if (attempt == Attempt::joined) return std::move(*socket);
        why = attempt == Attempt::other_command ? "a run with another command meets there"
              : attempt == Attempt::refused     ? "a run that has no place for it meets there"
                                                : "no rank 0 of this run answers";
      }
      findings.add(endpoint, why);
    }
    if (refusal && insists) throw Error(*refusal);
    found = where.endpoints.empty() ? where.unknown : findings.text();
  }
  throw Error(
      ErrorKind::timeout,
      fmt::format("rank 0 was not found (rank {} has looked for it for the timeout; {}): start all {} ranks, or "
                  "give a longer timeout",
                  place.rank, found, place.size));
}

}  // namespace distattn::backends::launch
