//===- Status.h - Errors without exceptions ---------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every function of the runtime that can fail returns Status or Result<T>.
// The message says what was given, what is supported and the nearest legal value,
// if one exists; the kind decides a program's exit status.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_SUPPORT_STATUS_H
#define ATTN_RT_SUPPORT_STATUS_H

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace attn::rt {

enum class ErrorKind {
  Input,  ///< bad usage or bad input: exit status 2
  Device, ///< the device or its driver refused
  Memory, ///< the device or the host has not enough memory
  Check,  ///< a result or a detector check failed: exit status 1
};

struct Error {
  ErrorKind kind;
  std::string message;
};

/// Success, or an error. Converts to true on success.
class [[nodiscard]] Status {
public:
  Status() = default;
  Status(Error error) : error_(std::move(error)) {}
  explicit operator bool() const { return !error_; }
  const Error &error() const { return *error_; }

private:
  std::optional<Error> error_;
};

/// A value, or an error. Converts to true when it holds a value.
template <typename T> class [[nodiscard]] Result {
public:
  Result(T value) : state_(std::move(value)) {}
  Result(Error error) : state_(std::move(error)) {}
  explicit operator bool() const { return state_.index() == 0; }
  T &operator*() & { return std::get<0>(state_); }
  const T &operator*() const & { return std::get<0>(state_); }
  T &&operator*() && { return std::get<0>(std::move(state_)); }
  T *operator->() { return &std::get<0>(state_); }
  const T *operator->() const { return &std::get<0>(state_); }
  const Error &error() const { return std::get<1>(state_); }

private:
  std::variant<T, Error> state_;
};

inline Error inputError(std::string message) { return {ErrorKind::Input, std::move(message)}; }

} // namespace attn::rt

#endif
