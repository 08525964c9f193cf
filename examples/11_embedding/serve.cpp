//===- serve.cpp - Continuous batching over a paged cache -----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//   serve serve.attn [--device host|cuda]
//
// Requests come and go while others run. A step holds, side by side, one row of
// each sequence that decodes and a chunk of each prompt that is still read. A
// request may ask for several answers: once its prompt is read, its sequence is
// forked, and the twins share its pages. If a step finds too few pages, the
// sequence that came last frees its own and starts over when there is space: a
// refused step changes nothing.
//
//===----------------------------------------------------------------------===//
#include "engine.h"

#include "attn_rt/cuda/CudaDevice.h"
#include "attn_rt/device/HostDevice.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>

using namespace attn::rt;

namespace {

constexpr int32_t pages = 20, mostChunk = 48;
constexpr size_t mostRunning = 6;
constexpr double tolerance = 8e-3;

struct Sequence {
  int request = 0, answers = 1; ///< number of forks after its prompt is read
  std::vector<uint32_t> tokens; ///< the prompt, and the generated tokens
  size_t wanted = 0;            ///< tokens at the end
  size_t written = 0;           ///< tokens in the cache
  NodeId node;
};

class Server {
public:
  explicit Server(Engine &engine) : engine(engine) {}

  void submit(Sequence sequence) { waiting.push_back(std::move(sequence)); }
  bool isIdle() const { return waiting.empty() && running.empty(); }

  /// Makes one step of all running sequences.
  Status step() {
    while (!waiting.empty() && running.size() < mostRunning) {
      running.push_back(std::move(waiting.front()));
      waiting.pop_front();
      running.back().node = engine.cache().createRoot();
    }
    auto change = grow();
    TRY(change);
    std::vector<RowGroup> groups;
    std::vector<Engine::Token> rows;
    std::vector<const Sequence *> owners;
    for (const Sequence &sequence : running) {
      const auto count = static_cast<int32_t>(next(sequence));
      groups.push_back({sequence.node, count});
      for (size_t i = sequence.written; i < sequence.written + static_cast<size_t>(count); ++i) {
        rows.push_back({sequence.tokens[i], i});
        owners.push_back(&sequence);
      }
    }
    TRY(engine.write(change->movement, rows));
    TRY(engine.attend(groups, rows, [&](size_t row, int layer, const model::BFloat16 *output) {
      worst = std::max(worst, model::errorOf(output, owners[row]->tokens, rows[row].position, layer));
    }));
    ++steps;
    allRows += rows.size();
    return advance();
  }

  int steps = 0, finished = 0, forks = 0, preempted = 0;
  size_t allRows = 0;
  double worst = 0;

private:
  /// Tokens of a sequence in the next step.
  static size_t next(const Sequence &sequence) {
    return std::min<size_t>(sequence.tokens.size() - sequence.written, mostChunk);
  }

  /// Takes pages for the step; if there are too few, the sequences that came last are preempted.
  Result<CacheChange> grow() {
    for (;;) {
      CacheStep step;
      for (const Sequence &sequence : running)
        step.append.push_back({sequence.node, static_cast<int32_t>(next(sequence))});
      auto change = engine.cache().apply(step);
      if (change || change.error().kind != ErrorKind::Memory || running.size() == 1)
        return change;
      Sequence last = std::move(running.back());
      running.pop_back();
      TRY(engine.cache().prune(last.node));
      last.written = 0;
      waiting.push_front(std::move(last));
      ++preempted;
    }
  }

  /// Advances each sequence after its rows were computed: it reads on, grows by a token, forks, or ends.
  Status advance() {
    std::vector<Sequence> going;
    for (Sequence &sequence : running) {
      sequence.written += next(sequence);
      if (sequence.written < sequence.tokens.size()) {
        going.push_back(std::move(sequence));
        continue;
      }
      for (; sequence.answers > 1; --sequence.answers) {
        auto fork = engine.cache().fork(sequence.node);
        if (!fork && fork.error().kind == ErrorKind::Memory)
          break; // tried again after the next token
        TRY(fork);
        TRY(engine.write(fork->movement, {}));
        Sequence twin = sequence;
        twin.answers = 1;
        twin.node = fork->twin;
        twin.tokens.push_back(sample());
        going.push_back(std::move(twin));
        ++forks;
      }
      if (sequence.tokens.size() >= sequence.wanted) {
        TRY(engine.cache().prune(sequence.node));
        ++finished;
        continue;
      }
      sequence.tokens.push_back(sample());
      going.push_back(std::move(sequence));
    }
    running = std::move(going);
    return engine.cache().checkInvariants();
  }

  uint32_t sample() { return random = random * 1664525u + 1013904223u; }

  Engine &engine;
  std::deque<Sequence> waiting;
  std::vector<Sequence> running;
  uint32_t random = 7;
};

Result<std::unique_ptr<Device>> openDevice(const std::string &name) {
  if (name == "cuda")
    return openCudaDevice();
  if (name != "host")
    return inputError("--device expects host or cuda, got '" + name + "'");
  return std::unique_ptr<Device>(makeHostDevice());
}

Status serve(const std::string &file, const std::string &deviceName) {
  auto device = openDevice(deviceName);
  TRY(device);
  const std::string on = (*device)->properties().name;
  auto engine = Engine::create(std::move(*device), file, pages);
  TRY(engine);
  Server server(**engine);
  const size_t prompts[] = {70, 20, 110, 33, 5, 64, 90, 17};
  for (int request = 0; request < 8 || !server.isIdle();) {
    if (request < 8 && server.steps % 2 == 0) { // a request arrives with every other step
      Sequence sequence;
      sequence.request = request;
      sequence.answers = request % 3 == 0 ? 2 : 1;
      for (size_t i = 0; i < prompts[request]; ++i)
        sequence.tokens.push_back(static_cast<uint32_t>(request * 1000) + static_cast<uint32_t>(i));
      sequence.wanted = prompts[request] + 12;
      server.submit(std::move(sequence));
      ++request;
    }
    TRY(server.step());
  }
  std::printf("%d answers in %d steps of %zu rows on %s: %d forks, %d sequences started over, error %.1e\n",
              server.finished, server.steps, server.allRows, on.c_str(), server.forks, server.preempted,
              server.worst);
  if (!(server.worst < tolerance))
    return Error{ErrorKind::Check, "a row is past its tolerance"};
  return {};
}

} // namespace

int main(int argc, char **argv) {
  std::string file, device = "host";
  for (int i = 1; i < argc; ++i)
    if (!std::strcmp(argv[i], "--device") && i + 1 < argc)
      device = argv[++i];
    else
      file = argv[i];
  const Status status =
      file.empty() ? inputError("usage: serve FILE.attn [--device host|cuda]") : serve(file, device);
  if (!status)
    std::fprintf(stderr, "serve: error: %s\n", status.error().message.c_str());
  return status ? 0 : status.error().kind == ErrorKind::Check ? 1 : 2;
}
