//===- LoadCode.cpp - One ELF object into memory --------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The parts of a linker that an object of one module needs, x86-64, position
// independent. Sections that occupy memory are laid end to end, code first:
//
//     | code | stubs |        pages that may be executed, and not written
//     | constants | table |   pages that may be read
//
// A call to a function outside jumps through its stub, and a stub through the
// address in the table, since the runtime may lie further away than a call reaches.
//
//===----------------------------------------------------------------------===//
#include "attn_rt/host/Abi.h"
#include "attn_rt/host/CodeObject.h"

#include <algorithm>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <limits>
#include <map>
#include <sys/mman.h>
#include <unistd.h>

namespace attn::rt::host {

namespace {

constexpr size_t stubBytes = 8, mostBytes = size_t{1} << 30;

size_t alignTo(size_t value, size_t alignment) { return (value + alignment - 1) / alignment * alignment; }

class Linker {
public:
  Linker(const CodeObject &object, const std::string &name) : elf_(object.elf), name_(name) {}

  Status link() {
    if (Status s = readSections(); !s)
      return s;
    if (Status s = readSymbols(); !s)
      return s;
    layOut();
    if (total_ > mostBytes)
      return fail("its sections take " + std::to_string(total_) + " bytes");
    memory_ = mmap(nullptr, total_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED)
      return Error{ErrorKind::Memory, name_ + ": no memory for " + std::to_string(total_) + " bytes of code"};
    for (const Section &section : sections_)
      if (section.placed && section.header.sh_type != SHT_NOBITS && section.header.sh_size)
        std::memcpy(base() + section.offset, elf_.data() + section.header.sh_offset, section.header.sh_size);
    if (Status s = bindExternals(); !s)
      return s;
    for (const Section &section : sections_)
      if (section.header.sh_type == SHT_RELA)
        if (Status s = relocate(section); !s)
          return s;
    if (mprotect(base(), codeBytes_, PROT_READ | PROT_EXEC) ||
        (total_ > codeBytes_ && mprotect(base() + codeBytes_, total_ - codeBytes_, PROT_READ)))
      return fail("the system refuses to make memory executable");
    return {};
  }

  void *find(const std::string &kernel) const {
    for (const Elf64_Sym &symbol : symbols_)
      if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && nameOf(symbol) == kernel && isCode(symbol))
        return base() + sections_[symbol.st_shndx].offset + symbol.st_value;
    return nullptr;
  }
  void *memory() const { return memory_ == MAP_FAILED ? nullptr : memory_; }
  size_t bytes() const { return total_; }

private:
  struct Section {
    Elf64_Shdr header;
    bool placed = false;
    size_t offset = 0;
  };
  std::span<const uint8_t> elf_;
  const std::string &name_;
  std::vector<Section> sections_;
  std::vector<Elf64_Sym> symbols_;
  std::string_view names_;
  std::map<uint32_t, size_t> external_; ///< index in the table by symbol: symbols defined elsewhere
  std::map<uint32_t, size_t> table_;    ///< index in the table by symbol: all symbols read from it
  size_t stubs_ = 0, tableAt_ = 0, codeBytes_ = 0, total_ = 0;
  void *memory_ = MAP_FAILED;

  uint8_t *base() const { return static_cast<uint8_t *>(memory_); }
  Status fail(const std::string &what) const { return inputError(name_ + ": host code: " + what); }

  template <typename T> std::optional<T> read(uint64_t offset) const {
    if (offset > elf_.size() || sizeof(T) > elf_.size() - offset)
      return std::nullopt;
    T value;
    std::memcpy(&value, elf_.data() + offset, sizeof(T));
    return value;
  }
  bool inFile(const Elf64_Shdr &header) const {
    return header.sh_type == SHT_NOBITS ||
           (header.sh_offset <= elf_.size() && header.sh_size <= elf_.size() - header.sh_offset);
  }
  std::string nameOf(const Elf64_Sym &symbol) const {
    if (symbol.st_name >= names_.size())
      return {};
    const std::string_view rest = names_.substr(symbol.st_name);
    return std::string(rest.substr(0, rest.find('\0')));
  }
  bool isDefined(const Elf64_Sym &symbol) const {
    return symbol.st_shndx != SHN_UNDEF && symbol.st_shndx < sections_.size() &&
           sections_[symbol.st_shndx].placed && symbol.st_value <= sections_[symbol.st_shndx].header.sh_size;
  }
  bool isCode(const Elf64_Sym &symbol) const {
    return isDefined(symbol) && sections_[symbol.st_shndx].header.sh_flags & SHF_EXECINSTR;
  }

  Status readSections() {
    const auto header = read<Elf64_Ehdr>(0);
    if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_type != ET_REL ||
        header->e_machine != EM_X86_64 || header->e_shentsize != sizeof(Elf64_Shdr))
      return fail("not a relocatable object for x86-64");
    for (uint64_t i = 0; i < header->e_shnum; ++i) {
      const auto section = read<Elf64_Shdr>(header->e_shoff + i * sizeof(Elf64_Shdr));
      if (!section || !inFile(*section) || section->sh_addralign > 4096 || section->sh_size > mostBytes)
        return fail("section " + std::to_string(i) + " lies outside of the object");
      sections_.push_back({*section});
    }
    return {};
  }

  Status readSymbols() {
    for (const Section &section : sections_) {
      if (section.header.sh_type != SHT_SYMTAB)
        continue;
      const size_t link = section.header.sh_link;
      if (link >= sections_.size() || sections_[link].header.sh_type != SHT_STRTAB)
        return fail("its symbols have no names");
      const Elf64_Shdr &strings = sections_[link].header;
      names_ = {reinterpret_cast<const char *>(elf_.data()) + strings.sh_offset, strings.sh_size};
      for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= section.header.sh_size; at += sizeof(Elf64_Sym))
        symbols_.push_back(*read<Elf64_Sym>(section.header.sh_offset + at));
    }
    return {};
  }

  /// Whether a section is loaded. Nothing unwinds through a kernel's frames, so .eh_frame is not loaded.
  static bool isPlaced(const Elf64_Shdr &header) {
    return header.sh_flags & SHF_ALLOC && (header.sh_type == SHT_PROGBITS || header.sh_type == SHT_NOBITS ||
                                           header.sh_type == SHT_INIT_ARRAY);
  }

  void layOut() {
    for (Section &section : sections_)
      section.placed = isPlaced(section.header);
    size_t end = 0;
    const auto place = [&](bool code) {
      for (Section &section : sections_)
        if (section.placed && static_cast<bool>(section.header.sh_flags & SHF_EXECINSTR) == code) {
          end = alignTo(end, std::max<size_t>(section.header.sh_addralign, 1));
          section.offset = end;
          end += section.header.sh_size;
        }
    };
    place(true);
    for (uint32_t i = 1; i < symbols_.size(); ++i)
      if (symbols_[i].st_shndx == SHN_UNDEF)
        external_.emplace(i, external_.size());
    stubs_ = alignTo(end, 16);
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    codeBytes_ = alignTo(stubs_ + external_.size() * stubBytes, page);
    end = codeBytes_;
    place(false);
    tableAt_ = alignTo(end, 8);
    table_ = external_;
    total_ = alignTo(tableAt_ + symbols_.size() * 8, page);
  }

  Status bindExternals() {
    std::map<std::string_view, void *> known;
    for (const Symbol &symbol : abiSymbols())
      known[symbol.name] = symbol.address;
    for (const auto &[symbol, index] : external_) {
      const std::string name = nameOf(symbols_[symbol]);
      auto found = known.find(name);
      // Code generation also calls functions of libm and libc.
      void *address = found != known.end() ? found->second : dlsym(RTLD_DEFAULT, name.c_str());
      if (!address)
        return fail("it calls '" + name + "', which does not exist");
      put(tableAt_ + index * 8, reinterpret_cast<uint64_t>(address));
      // jmp *table[index](%rip)
      const size_t stub = stubs_ + index * stubBytes;
      const uint8_t jump[] = {0xff, 0x25};
      std::memcpy(base() + stub, jump, sizeof(jump));
      put(stub + 2, static_cast<int32_t>(tableAt_ + index * 8 - (stub + 6)));
    }
    return {};
  }

  template <typename T> void put(size_t offset, T value) {
    std::memcpy(base() + offset, &value, sizeof(value));
  }

  /// The offset of the table entry that holds a symbol's address.
  size_t entryOf(uint32_t symbol) {
    auto [entry, isNew] = table_.try_emplace(symbol, table_.size());
    if (isNew)
      put(tableAt_ + entry->second * 8, reinterpret_cast<uint64_t>(base()) + *offsetOf(symbol));
    return tableAt_ + entry->second * 8;
  }
  /// The symbol's offset from the start of memory; for a function outside, the offset of its stub.
  std::optional<size_t> offsetOf(uint32_t symbol) const {
    if (auto found = external_.find(symbol); found != external_.end())
      return stubs_ + found->second * stubBytes;
    if (!isDefined(symbols_[symbol]))
      return std::nullopt;
    return sections_[symbols_[symbol].st_shndx].offset + symbols_[symbol].st_value;
  }

  Status relocate(const Section &list) {
    if (list.header.sh_info >= sections_.size())
      return fail("relocations of a section that is not there");
    const Section &target = sections_[list.header.sh_info];
    if (!target.placed)
      return {};
    for (uint64_t at = 0; at + sizeof(Elf64_Rela) <= list.header.sh_size; at += sizeof(Elf64_Rela)) {
      const Elf64_Rela rela = *read<Elf64_Rela>(list.header.sh_offset + at);
      const uint32_t symbol = ELF64_R_SYM(rela.r_info), type = ELF64_R_TYPE(rela.r_info);
      const size_t width = type == R_X86_64_64 || type == R_X86_64_PC64 ? 8 : 4;
      if (symbol == 0 || symbol >= symbols_.size() || !offsetOf(symbol) ||
          rela.r_offset > target.header.sh_size || width > target.header.sh_size - rela.r_offset)
        return fail("a relocation without an offset or a symbol");
      const size_t place = target.offset + rela.r_offset;
      // Modulo 2^64: a damaged object may have any addend.
      const auto from = [&](uint64_t address, uint64_t origin) {
        return static_cast<int64_t>(address + static_cast<uint64_t>(rela.r_addend) - origin);
      };
      int64_t value = from(*offsetOf(symbol), place);
      switch (type) {
      case R_X86_64_PC32:
      case R_X86_64_PLT32:
      case R_X86_64_PC64:
        break;
      case R_X86_64_GOTPCREL:
      case R_X86_64_GOTPCRELX:
      case R_X86_64_REX_GOTPCRELX:
        value = from(entryOf(symbol), place);
        break;
      case R_X86_64_64:
        value = from(reinterpret_cast<uint64_t>(base()) + *offsetOf(symbol), 0);
        break;
      default:
        return fail("a relocation of type " + std::to_string(type));
      }
      if (width == 8)
        put(place, value);
      else if (value < std::numeric_limits<int32_t>::min() || value > std::numeric_limits<int32_t>::max())
        return fail("a relocation out of reach");
      else
        put(place, static_cast<int32_t>(value));
    }
    return {};
  }
};

} // namespace

Result<std::unique_ptr<LoadedCode>> LoadedCode::load(const CodeObject &object, const std::string &name) {
  const auto model = std::find(std::begin(cpuModels), std::end(cpuModels), object.cpu);
  const auto own = std::find(std::begin(cpuModels), std::end(cpuModels), thisCpu());
  if (model == std::end(cpuModels) || model > own)
    return inputError(name + ": host code: made for " + object.cpu + ", and this machine is " +
                      std::string(thisCpu()) + ": compile it again");
  std::unique_ptr<LoadedCode> code(new LoadedCode);
  Linker linker(object, name);
  Status linked = linker.link();
  code->memory_ = linker.memory();
  code->bytes_ = linker.bytes();
  if (!linked)
    return linked.error();
  code->kernels_ = object.kernels;
  for (HostKernel &kernel : code->kernels_) {
    void *entry = linker.find(kernel.name);
    if (!entry)
      return inputError(name + ": host code: no kernel '" + kernel.name + "'");
    kernel.entry = reinterpret_cast<void (*)(LaneAbi *, void **)>(entry);
  }
  return code;
}

LoadedCode::~LoadedCode() {
  if (memory_)
    munmap(memory_, bytes_);
}

} // namespace attn::rt::host
