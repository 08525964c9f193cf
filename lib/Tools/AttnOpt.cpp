//===- AttnOpt.cpp - The attn-opt program ---------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Two programs in one. With --emit it compiles a problem to any level, or to a file that programs load.
// Without, it is MLIR's own driver with attn's dialects, passes and pipeline.
//
//===----------------------------------------------------------------------===//
#include "attn/Artifact/MakeArtifact.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Attn/IR/Source.h"
#include "attn/Pipelines/Emit.h"
#include "attn/Support/Chip.h"
#include "attn/Support/Statistic.h"
#include "attn/Tools/Tools.h"

#include "attn_rt/support/Version.h"

#include "mlir/Pass/PassInstrumentation.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Support/FileUtilities.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "llvm/ADT/SmallVectorExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Config/abi-breaking.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Debug.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/ToolOutputFile.h"

#include <atomic>
#include <map>
#include <mutex>

using namespace mlir;
using namespace mlir::attn;
namespace cl = llvm::cl;

namespace {

/// Exit statuses of every program: 1 is a wrong result or failed check, 2 bad usage or bad input.
constexpr int ok = 0, badInput = 2;

cl::OptionCategory category("attn-opt");
cl::opt<std::string> emitted(
    "emit", cl::value_desc("level"), cl::cat(category),
    cl::desc("compile the file's attention and print a level:\n"
             "problem    the attention with its defaults filled in\n"
             "online     chains of partial-softmax states\n"
             "tile       loops, copies, fragments, MMAs, masks\n"
             "machine    the code of one lane: llvm and nvvm\n"
             "ptx        PTX\n"
             "cubin      machine code, through ptxas\n"
             "manifest   the description for launches, as JSON\n"
             "artifact   everything that programs load, for every function of the file, as one file"));
cl::opt<std::string> input(cl::Positional, cl::desc("<file>"), cl::init("-"), cl::cat(category));
cl::opt<std::string> output("o", cl::desc("output file; - is the standard output"), cl::init("-"),
                            cl::value_desc("file"), cl::cat(category));
const char *targetWords() {
  static const std::string words =
      "chip to compile for: " + listChips() + "; an artifact may be for several, A,B,...";
  return words.c_str();
}
cl::list<std::string> targets("target", cl::desc(targetWords()), cl::CommaSeparated, cl::value_desc("chip"),
                              cl::cat(category));
cl::opt<std::string> schedule("schedule", cl::desc("family of instructions: auto, mma or wgmma"),
                              cl::init("auto"), cl::value_desc("name"), cl::cat(category));
cl::opt<std::string> entry("entry", cl::desc("function to compile, if the file has several"),
                           cl::value_desc("name"), cl::cat(category));
cl::opt<bool> ptxasVerbose("ptxas-verbose", cl::desc("with --emit=cubin: print the output of ptxas -v"),
                           cl::cat(category));

cl::opt<std::string> code("code",
                          cl::desc("code for GPUs in an artifact: ptx, cubin (through ptxas) or none"),
                          cl::init("ptx"), cl::value_desc("form"), cl::cat(category));
cl::opt<bool> hostCode(
    "host-code",
    cl::desc("in an artifact: add native code for the host device, made from the first target's kernels"),
    cl::cat(category));

/// An LLVM without assertions, such as Debian's, lacks this option, but has everything that the option sets.
#if !defined(NDEBUG) && !LLVM_ENABLE_ABI_BREAKING_CHECKS
cl::list<std::string> debugOnly("debug-only", cl::CommaSeparated, cl::value_desc("flag"), cl::cat(category),
                                cl::desc("print why these passes leave code unchanged"));

void setDebugTypes() {
  auto types = llvm::map_to_vector(debugOnly, [](const std::string &flag) { return flag.c_str(); });
  if ((llvm::DebugFlag = !types.empty()))
    llvm::setCurrentDebugTypes(types.data(), types.size());
}
#else
void setDebugTypes() {}
#endif

/// Takes over MLIR's option: its own reports, one for each pass manager, have no lines
/// (attn/Support/Statistic.h).
bool takeAsksForStatistics() {
  auto *asks = static_cast<cl::opt<bool> *>(cl::getRegisteredOptions().lookup("mlir-pass-statistics"));
  return asks && std::exchange(asks->getValue(), false);
}

int usageError(const llvm::Twine &message) {
  llvm::errs() << "attn-opt: error: " << message << "\n";
  return badInput;
}

/// Limits --help to our options and the passes, which are values of one option without a name. The options of
/// MLIR and LLVM are two hundred lines more.
void hideOthers() {
  for (auto &[name, option] : cl::getRegisteredOptions())
    if (name != "help" && name != "version" && name != "help-hidden" && option->hasArgStr() &&
        !llvm::is_contained(option->Categories, &category) && option->getOptionHiddenFlag() == cl::NotHidden)
      option->setHiddenFlag(cl::Hidden);
}

void printVersion(llvm::raw_ostream &out) {
  out << "attn-opt " << ::attn::rt::version() << " (LLVM " LLVM_VERSION_STRING ")\n";
}

/// Prints LLVM's message about a bad command line as an error of ours. LLVM writes some messages to the given
/// stream, some to standard error; both begin with the program's name, which therefore ends in "error".
bool parseCommandLine(int argc, char **argv, llvm::StringRef overview) {
  SmallVector<const char *> arguments(argv, argv + argc);
  auto asksForHelp = [](const char *argument) {
    return llvm::StringRef(argument).ltrim('-').starts_with("help");
  };
  if (llvm::none_of(arguments, asksForHelp)) // --help also prints the name
    arguments[0] = "attn-opt: error";
  std::string said;
  llvm::raw_string_ostream errors(said);
  if (cl::ParseCommandLineOptions(argc, arguments.data(), overview, &errors))
    return true;
  SmallVector<llvm::StringRef> lines;
  llvm::StringRef(said).split(lines, '\n', -1, /*KeepEmpty=*/false);
  for (llvm::StringRef line : lines)
    llvm::errs() << line.split(".  Try: ").first << "\n";
  return false;
}

/// Returns the fault in the combination of options, or an empty string.
std::string optionFault() {
  const std::optional<Level> level = parseLevel(emitted);
  const bool isArtifact = emitted == "artifact";
  if (!level && !isArtifact)
    return "unknown level '" + emitted + "'; known are " + listLevels() + ", artifact";
  if (targets.empty())
    targets.push_back("sm_90a");
  llvm::StringSet<> given;
  for (const std::string &target : targets) {
    if (!findChip(target))
      return "unknown target '" + target + "'; known are " + listChips();
    if (!given.insert(target).second)
      return "target '" + target + "' is given twice";
  }
  if (!isKnownSchedule(schedule))
    return "unknown schedule '" + schedule + "'; known are " + listSchedules();
  if (code != "ptx" && code != "cubin" && code != "none")
    return "unknown code '" + code + "'; known are ptx, cubin, none";
  if (!isArtifact && targets.size() > 1)
    return "--emit=" + emitted + " is for one target, got " + llvm::join(targets, ", ") +
           "; --emit=artifact takes several";
  if (!isArtifact && (hostCode || code.getNumOccurrences()))
    return "--host-code and --code need --emit=artifact";
  if (isArtifact && code == "none" && !hostCode)
    return "an artifact without code: --code=none needs --host-code";
  return {};
}

/// Returns the file of artifacts: each function for each target. Errors have been printed.
FailureOr<std::string> emitArtifacts(ModuleOp module) {
  SmallVector<std::string> entries;
  for (func::FuncOp function : attentionFunctions(module))
    if (entry.empty() || function.getName() == entry)
      entries.push_back(function.getName().str());
  if (entries.empty()) {
    (void)findEntry(module, entry);
    return failure();
  }
  std::vector<::attn::rt::Artifact> artifacts;
  for (const std::string &function : entries)
    for (const std::string &target : targets) {
      FailureOr<CompiledKernel> kernel = compileProblem(module, function, {target, schedule, /*ptx=*/false});
      if (failed(kernel))
        return failure();
      const ArtifactForms forms{hostCode && target == targets.front(), false, code == "ptx", code == "cubin"};
      ArtifactReport report;
      FailureOr<::attn::rt::Artifact> artifact = makeArtifact(*kernel, target, forms, report);
      if (failed(artifact))
        return failure();
      if (!report.refusal.empty()) {
        usageError(report.refusal);
        return failure();
      }
      if (ptxasVerbose)
        llvm::errs() << report.ptxasLog;
      artifacts.push_back(std::move(*artifact));
    }
  return ::attn::rt::writeArtifacts(artifacts);
}

/// Returns the requested level. Errors have been printed.
FailureOr<std::string> emitText(ModuleOp module) {
  std::string log;
  FailureOr<std::string> text =
      emitLevel(module, *parseLevel(emitted), entry, {targets.front(), schedule}, &log);
  if (failed(text))
    return failure();
  if (ptxasVerbose)
    llvm::errs() << log;
  return text;
}

int emitFile(DialectRegistry &registry) {
  if (const std::string fault = optionFault(); !fault.empty())
    return usageError(fault);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  context.printOpOnDiagnostic(false); // the file's own text is quoted instead
  llvm::SourceMgr sources;
  // Diagnostics quote the source line, as a user of a compiler expects.
  OwningOpRef<ModuleOp> module;
  SourceMgrDiagnosticHandler handler(sources, &context);
  module = parseProblemFile(input, sources, &context);
  if (!module)
    return badInput;
  FailureOr<std::string> text = emitted == "artifact" ? emitArtifacts(*module) : emitText(*module);
  if (failed(text))
    return badInput;
  std::string error;
  std::unique_ptr<llvm::ToolOutputFile> file = openOutputFile(output, &error);
  if (!file)
    return usageError(error);
  file->os() << *text;
  file->keep();
  return ok;
}

/// Counts the passes that change their input.
class ChangeCounter : public PassInstrumentation {
public:
  explicit ChangeCounter(std::atomic<unsigned> &changes) : changes(changes) {}
  void runBeforePass(Pass *pass, Operation *op) override {
    const OperationFingerPrint now(op);
    std::lock_guard lock(mutex);
    before.insert_or_assign({pass, op}, now);
  }
  void runAfterPass(Pass *pass, Operation *op) override {
    const OperationFingerPrint now(op);
    std::lock_guard lock(mutex);
    if (auto found = before.find({pass, op}); found != before.end() && found->second != now)
      ++changes;
  }

private:
  std::atomic<unsigned> &changes;
  std::mutex mutex; // passes run on several operations at once
  std::map<std::pair<Pass *, Operation *>, OperationFingerPrint> before;
};

/// Warns if none of our passes changed anything: most often the file is of another level than they are.
void warnOfNothing(StringRef pipeline, unsigned changes) {
  std::string flags;
  SmallVector<StringRef> words;
  llvm::SplitString(pipeline, words, "(),");
  for (StringRef word : words)
    if (word.starts_with("attn-") || word.starts_with("tile-") || word.starts_with("machine-"))
      flags += " --" + word.split('{').first.str();
  if (changes == 0 && !flags.empty() && flags != " --attn-check-signature")
    llvm::errs() << "attn-opt: warning: nothing was changed by" << flags
                 << ": the file may be of another level; --emit runs the passes in their order\n";
}

/// MLIR's driver shows errors in the buffer that it parsed. This class restores the characters that
/// acceptAmpersand replaced, as soon as there is an error to show; nothing is parsed after that.
class QuoteAsWritten : public DialectExtension<QuoteAsWritten, AttnDialect> {
public:
  QuoteAsWritten(std::shared_ptr<const std::string> written, llvm::MemoryBufferRef parsed)
      : written(std::move(written)), parsed(parsed) {}
  void apply(MLIRContext *context, AttnDialect *) const override {
    context->getDiagEngine().registerHandler([*this](Diagnostic &) {
      llvm::copy(*written, const_cast<char *>(parsed.getBufferStart()));
      return failure(); // the driver's own handler shows it
    });
  }

private:
  std::shared_ptr<const std::string> written;
  llvm::MemoryBufferRef parsed;
};

/// Runs MLIR's own driver, but also accepts `&` for `and`.
int runPasses(DialectRegistry &registry) {
  std::string error;
  std::unique_ptr<llvm::MemoryBuffer> source = openInputFile(input, &error);
  if (!source)
    return usageError(error);
  // Some inputs would crash MLIR's parser.
  if (auto fault = findSourceFault(source->getBuffer())) {
    llvm::errs() << input << ":" << fault->line << ":" << fault->column << ": error: " << fault->message
                 << "\n";
    return badInput;
  }
  std::unique_ptr<llvm::ToolOutputFile> file = openOutputFile(output, &error);
  if (!file)
    return usageError(error);
  MlirOptMainConfig config = MlirOptMainConfig::createFromCLOptions();
  const auto written = std::make_shared<const std::string>(source->getBuffer());
  source = acceptAmpersand(std::move(source));
  if (source->getBuffer() != *written &&
      config.inputSplitMarker().empty()) // otherwise more is parsed after an error
    registry.addExtension(TypeID::get<QuoteAsWritten>(), std::make_unique<QuoteAsWritten>(written, *source));
  std::string pipeline;
  std::atomic<unsigned> changes = 0;
  config.setPassPipelineSetupFn([&, given = config](PassManager &manager) {
    if (failed(given.setupPassPipeline(manager)))
      return failure();
    pipeline.clear();
    llvm::raw_string_ostream stream(pipeline);
    manager.printAsTextualPipeline(stream);
    manager.addInstrumentation(std::make_unique<ChangeCounter>(changes));
    return success();
  });
  if (failed(MlirOptMain(file->os(), std::move(source), registry, config)))
    return badInput;
  warnOfNothing(pipeline, changes);
  file->keep();
  return ok;
}

} // namespace

int mlir::attn::attnOptMain(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  DialectRegistry registry;
  registerEverything(registry);
  std::string help = registerCLIOptions(
      "attn-opt: the attention compiler\n\n  attn-opt FILE --emit=ptx --target=sm_90a -o kernel.ptx\n\n"
      "Without --emit it runs passes, as mlir-opt does; --help-hidden has the options of MLIR, too.\n",
      registry);
  hideOthers();
  cl::SetVersionPrinter(printVersion);
  // MLIR's parseCLIOptions is not used: it exits with 1 on a bad command line.
  if (!parseCommandLine(argc, argv, help))
    return badInput;
  setDebugTypes();
  const bool counts = takeAsksForStatistics();
  const int status = emitted.getNumOccurrences() ? emitFile(registry) : runPasses(registry);
  if (counts)
    printStatistics(llvm::errs());
  return status;
}
