//===- Launches.cpp - Launches that are found again by how tensors lie -----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a call like one before costs: the tensors of PyTorch are read (Dlpack.h), their shapes and strides and
// the options become one list of integers, and under that list stands the launch, with all but the addresses.
// Whatever is in any way new is not found. Then Python does all of it (attn/run/launches.py), and adds what
// it did.
//
//===----------------------------------------------------------------------===//
#include "Dlpack.h"
#include "Objects.h"

#include <array>
#include <atomic>
#include <cstring>
#include <list>
#include <memory>
#include <optional>
#include <pthread.h>
#include <unordered_map>

namespace attn::python {

namespace {

/// PyTorch, since somebody has called it. Never freed.
struct Library {
  PyTypeObject *tensor, *parameter;
  const DLExchange *exchange;
  PyObject *isNegated, *emptyLike, *isGradEnabled;
  PyObject *forwardMode; ///< names of torch.autograd.forward_ad
  PyObject *values;      ///< a tuple of types whose objects never change, and are compared
  PyObject *constants;   ///< the same, but of large objects, of which each is another
  PyObject *numbers;     ///< by value
};
const Library *library = nullptr;
PyObject *levelName, *needsGradientName, *acquireName, *releaseName, *aliveName, *usedName;
std::atomic<int64_t> forks{0};

constexpr Py_ssize_t mostTensors = 24;
constexpr size_t mostWords = 2048, mostEntries = 128;
constexpr Py_ssize_t mostValues = 1024;

using Object = py::object;

/// A launch of a plan, whose addresses alone are missing.
struct Launch {
  Object owner; ///< a weak reference to what keeps the plan, and may let it go
  Object lock;  ///< of the owner, which may give its plan to others; or None
  Object clock; ///< what numbers uses of owners
  AttnPlan *plan;
  /// Of each slot, where its address is: in what is given, behind it in what is made, behind that in what is
  /// kept.
  std::vector<uint16_t> places;
  std::vector<size_t> bytes;
  std::vector<std::vector<int64_t>> strides;
  std::vector<const int64_t *> lies;
  bool isStrided = false;
  std::vector<Object> likes; ///< what is made is empty_like these
  std::vector<Object> kept;
  std::vector<int32_t> results; ///< of what is given and made; -1: None
  bool isTuple;
};

Launch makeLaunch(const Object &owner, const Plan &plan, const Object &lock, const Object &clock,
                  const std::vector<uint16_t> &places, const std::vector<size_t> &bytes,
                  const std::vector<std::optional<std::vector<int64_t>>> &strides, std::vector<Object> likes,
                  std::vector<Object> kept, const py::object &results) {
  Launch launch;
  launch.owner = py::weakref(owner);
  launch.lock = lock;
  launch.clock = clock;
  launch.plan = plan.handle.get();
  launch.places = places;
  launch.bytes = bytes;
  for (const auto &each : strides) {
    launch.strides.push_back(each.value_or(std::vector<int64_t>()));
    launch.isStrided |= each.has_value();
    if (each) // what is missing is no stride, and refused
      launch.strides.back().resize(std::max<size_t>(each->size(), 8));
  }
  launch.strides.resize(places.size());
  for (const auto &each : launch.strides)
    launch.lies.push_back(each.empty() ? nullptr : each.data());
  launch.likes = std::move(likes);
  launch.kept = std::move(kept);
  launch.isTuple = py::isinstance<py::tuple>(results);
  for (py::handle each : launch.isTuple ? py::tuple(results) : py::make_tuple(results))
    launch.results.push_back(each.is_none() ? -1 : each.cast<int32_t>());
  if (bytes.size() != places.size())
    raise("input", "expected as many sizes as places");
  return launch;
}

/// What a call is looked up by.
struct Key {
  std::array<int64_t, mostWords> words;
  size_t count = 0;
  std::array<PyObject *, 4> constants; ///< whose addresses are among the words
  size_t constantCount = 0;

  bool add(int64_t word) {
    if (count == mostWords)
      return false;
    words[count++] = word;
    return true;
  }
  bool add(const int64_t *first, int64_t number) {
    if (number > static_cast<int64_t>(mostWords - count))
      return false;
    std::memcpy(words.data() + count, first, static_cast<size_t>(number) * sizeof *first);
    count += static_cast<size_t>(number);
    return true;
  }
  bool addTensor(const DLTensor &tensor) {
    const int64_t type = tensor.code | tensor.bits << 8 | int64_t{tensor.lanes} << 16;
    const int64_t place = int64_t{tensor.deviceType} << 32 | static_cast<uint32_t>(tensor.deviceId);
    if (!tensor.strides && tensor.rank)
      return false;
    return add(tensor.rank + 1) && add(type) && add(place) && add(tensor.shape, tensor.rank) &&
           add(tensor.strides, tensor.rank);
  }
  /// `isNew`: constants that were not met yet get a number; else they are not found.
  bool addOption(PyObject *option, bool isNew, int depth = 0);
  bool addValue(PyObject *option, bool isNew);
  bool addNumbers(PyObject *buffer);
  /// Numbers that a tensor holds: a table, which decides what is planned.
  bool addTable(const DLTensor &table);
  uint64_t hash() const {
    uint64_t hash = count;
    for (size_t i = 0; i < count; ++i) {
      hash = (hash ^ static_cast<uint64_t>(words[i])) * 0x9e3779b97f4a7c15;
      hash ^= hash >> 29;
    }
    return hash;
  }
};

Object orThrow(PyObject *made) {
  if (!made)
    throw py::error_already_set();
  return py::reinterpret_steal<Object>(made);
}

/// Whether its type is exactly one of a tuple.
bool isOneOf(PyObject *object, PyObject *types) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(types); ++i)
    if (PyTuple_GET_ITEM(types, i) == reinterpret_cast<PyObject *>(Py_TYPE(object)))
      return true;
  return false;
}

bool isTensor(PyObject *object) {
  return Py_TYPE(object) == library->tensor || Py_TYPE(object) == library->parameter;
}

bool read(PyObject *object, DLTensor &tensor) {
  if (!isTensor(object))
    return false;
  if (library->exchange->read(object, &tensor)) {
    PyErr_Clear(); // without memory of its own
    return false;
  }
  const Object negated = orThrow(PyObject_CallOneArg(library->isNegated, object));
  return negated.ptr() == Py_False; // what it holds is what is read
}

bool Key::addTable(const DLTensor &table) {
  const bool isRead = table.deviceType == deviceCpu && table.code == 0 && table.lanes == 1 &&
                      table.rank == 1 && (table.bits == 32 || table.bits == 64) && table.shape[0] >= 0 &&
                      (table.data || table.shape[0] == 0) && // a stand-in has none
                      (!table.strides || table.strides[0] == 1 || table.shape[0] < 2);
  if (!isRead || !add(7) || !add(table.bits) || !add(table.shape[0]))
    return false;
  const char *data = static_cast<const char *>(table.data) + table.offset;
  if (table.bits == 64)
    return add(reinterpret_cast<const int64_t *>(data), table.shape[0]);
  for (int64_t i = 0; i < table.shape[0]; ++i)
    if (!add(reinterpret_cast<const int32_t *>(data)[i]))
      return false;
  return true;
}

bool Key::addNumbers(PyObject *buffer) {
  Py_buffer view;
  if (PyObject_GetBuffer(buffer, &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)) {
    PyErr_Clear();
    return false;
  }
  int64_t count = view.ndim == 1 ? view.shape[0] : -1;
  DLTensor table{view.buf, deviceCpu, 0,       view.ndim, 0, static_cast<uint8_t>(8 * view.itemsize),
                 1,        &count,    nullptr, 0};
  const std::string dtype = dtypeOfFormat(view.format, view.itemsize);
  const bool isAdded = (dtype == "i32" || dtype == "i64") && addTable(table);
  PyBuffer_Release(&view);
  return isAdded;
}

bool Key::addOption(PyObject *option, bool isNew, int depth) {
  if (option == Py_None)
    return add(0);
  if (PyBool_Check(option))
    return add(option == Py_True ? 1 : 2);
  if (PyLong_CheckExact(option)) {
    int overflow = 0;
    const int64_t value = PyLong_AsLongLongAndOverflow(option, &overflow);
    return !overflow && add(3) && add(value);
  }
  if (PyFloat_CheckExact(option)) {
    const double value = PyFloat_AS_DOUBLE(option);
    int64_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    return add(4) && add(bits);
  }
  if (PyTuple_CheckExact(option) || PyList_CheckExact(option)) {
    if (depth > 2 || !add(PyTuple_CheckExact(option) ? 5 : 6) || !add(PySequence_Fast_GET_SIZE(option)))
      return false;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(option); ++i) // comparing may run Python's code
      if (!addOption(PySequence_Fast_GET_ITEM(option, i), isNew, depth + 1))
        return false;
    return true;
  }
  if (isTensor(option)) {
    DLTensor table;
    return read(option, table) && addTable(table);
  }
  if (PyObject_CheckBuffer(option) && !PyBytes_CheckExact(option))
    return addNumbers(option);
  if (isOneOf(option, library->values))
    return addValue(option, isNew);
  if (!isOneOf(option, library->constants) || constantCount == constants.size())
    return false;
  constants[constantCount++] = option;
  return add(9) && add(static_cast<int64_t>(reinterpret_cast<intptr_t>(option)));
}

bool Key::addValue(PyObject *option, bool isNew) {
  static int64_t last = 0; // none is given twice: what was forgotten is not found again
  PyObject *number = PyDict_GetItemWithError(library->numbers, option);
  if (!number && PyErr_Occurred())
    throw py::error_already_set();
  if (number)
    return add(8) && add(PyLong_AsLongLong(number));
  if (!isNew)
    return false;
  if (PyDict_GET_SIZE(library->numbers) == mostValues)
    PyDict_Clear(library->numbers);
  if (PyDict_SetItem(library->numbers, option, py::int_(++last).ptr()))
    throw py::error_already_set();
  return add(8) && add(last);
}

/// A call's tensors, and what it is looked up by.
struct Asked {
  std::array<DLTensor, mostTensors> tensors;
  Py_ssize_t count = 0;
  uintptr_t stream = 0;
  Key key;

  /// Whether launches may be found at all: by tensors that PyTorch does not wrap, of the process that made
  /// them.
  bool read(PyObject *given, PyObject *options, bool isNew) {
    if (!library || !PyTuple_CheckExact(given) || PyTuple_GET_SIZE(given) > mostTensors)
      return false;
    if (PyObject *level = PyDict_GetItemWithError(library->forwardMode, levelName);
        !level || !PyLong_Check(level) || PyLong_AsLong(level) >= 0)
      return false;
    PyObject *enabled = PyObject_CallNoArgs(library->isGradEnabled);
    if (!enabled)
      throw py::error_already_set();
    Py_DECREF(enabled);
    count = PyTuple_GET_SIZE(given);
    int64_t recorded = 0;
    bool isOnGpu = false;
    if (!key.add(forks.load(std::memory_order_relaxed)) || !key.add(count))
      return false;
    for (Py_ssize_t i = 0; i < count; ++i) {
      PyObject *object = PyTuple_GET_ITEM(given, i);
      DLTensor &tensor = tensors[static_cast<size_t>(i)];
      if (object == Py_None) {
        tensor.data = nullptr;
        tensor.offset = 0;
        if (!key.add(0))
          return false;
        continue;
      }
      if (PyTuple_CheckExact(object)) {
        if (!readView(object, tensor, isNew))
          return false;
        continue;
      }
      if (!python::read(object, tensor) || !key.addTensor(tensor))
        return false;
      if (enabled == Py_True) {
        const auto needs = py::reinterpret_steal<Object>(PyObject_GetAttr(object, needsGradientName));
        if (!needs)
          throw py::error_already_set();
        recorded |= int64_t{needs.ptr() == Py_True} << i;
      }
      if (tensor.deviceType == deviceCuda && !isOnGpu) {
        isOnGpu = true;
        void *current = nullptr;
        if (library->exchange->stream(deviceCuda, tensor.deviceId, &current))
          throw py::error_already_set();
        stream = reinterpret_cast<uintptr_t>(current);
      }
    }
    return key.add(recorded) && key.add(static_cast<int64_t>(stream)) && key.addOption(options, isNew);
  }

  /// An address with all that Python knows of what lies there.
  bool readView(PyObject *view, DLTensor &tensor, bool isNew) {
    if (PyTuple_GET_SIZE(view) != 2 || !PyTuple_CheckExact(PyTuple_GET_ITEM(view, 1)))
      return false;
    tensor.data = reinterpret_cast<void *>(unsignedOf(PyTuple_GET_ITEM(view, 0), "address"));
    tensor.offset = 0;
    return key.add(-1) && key.addValue(PyTuple_GET_ITEM(view, 1), isNew);
  }
};

class Launches {
public:
  /// What stands under a key: a launch, or somebody who does what is to be done.
  struct Entry {
    std::vector<int64_t> words;
    std::vector<Object> constants; ///< so that no other object gets their addresses
    std::shared_ptr<const Launch> launch;
    Object call;
    std::list<uint64_t>::iterator age;
  };

  Entry *find(const Key &key, uint64_t hash) {
    const auto found = entries_.find(hash);
    if (found == entries_.end() || found->second.words.size() != key.count ||
        std::memcmp(found->second.words.data(), key.words.data(), key.count * sizeof(int64_t)) != 0)
      return nullptr;
    return &found->second;
  }
  void add(const Key &key, Entry entry) {
    entry.words.assign(key.words.data(), key.words.data() + key.count);
    for (size_t i = 0; i < key.constantCount; ++i)
      entry.constants.push_back(py::reinterpret_borrow<Object>(key.constants[i]));
    const uint64_t hash = key.hash();
    const Entry old = take(hash); // freed when all is in order: that may run Python's code
    const Entry oldest = entries_.size() == mostEntries ? take(ages_.front()) : Entry();
    entry.age = ages_.insert(ages_.end(), hash);
    entries_.emplace(hash, std::move(entry));
  }
  Entry take(uint64_t hash) {
    const auto found = entries_.find(hash);
    if (found == entries_.end())
      return {};
    Entry entry = std::move(found->second);
    ages_.erase(entry.age);
    entries_.erase(found);
    return entry;
  }
  void clear() {
    const auto entries = std::exchange(entries_, {});
    ages_.clear();
  }
  size_t size() const { return entries_.size(); }

private:
  std::unordered_map<uint64_t, Entry> entries_;
  std::list<uint64_t> ages_; ///< the oldest first
};

Object strongReference(const Object &weak) {
#if PY_VERSION_HEX >= 0x030D0000
  PyObject *found = nullptr;
  if (PyWeakref_GetRef(weak.ptr(), &found) < 0)
    throw py::error_already_set();
  return py::reinterpret_steal<Object>(found);
#else
  PyObject *found = PyWeakref_GetObject(weak.ptr());
  return found == Py_None ? Object() : py::reinterpret_borrow<Object>(found);
#endif
}

/// Holds the owner's lock, if it has one, where nobody else does.
class Hold {
public:
  Hold(const Launch &launch, const Object &owner) : lock_(launch.lock) {
    if (lock_.is_none()) {
      isHeld_ = true;
      return;
    }
    isTaken_ = orThrow(PyObject_CallMethodOneArg(lock_.ptr(), acquireName, Py_False)).ptr() == Py_True;
    if (!isTaken_)
      return;
    const auto alive = py::reinterpret_steal<Object>(PyObject_GetAttr(owner.ptr(), aliveName));
    if (!alive)
      PyErr_Clear();
    isHeld_ = alive.ptr() == Py_True;
  }
  ~Hold() {
    if (!isTaken_)
      return;
    PyObject *type, *value, *trace; // of an interrupt
    PyErr_Fetch(&type, &value, &trace);
    Py_XDECREF(PyObject_CallMethodNoArgs(lock_.ptr(), releaseName));
    PyErr_Restore(type, value, trace);
  }
  bool isHeld() const { return isHeld_; }

private:
  Object lock_;
  bool isTaken_ = false, isHeld_ = false;
};

/// Null where it cannot be done so: nothing was launched then, or it fails again in the same way.
Object launched(const Launch &launch, const Asked &asked, PyObject *tensors) {
  const Object owner = strongReference(launch.owner);
  if (!owner)
    return {};
  const Hold hold(launch, owner);
  if (!hold.isHeld())
    return {};
  const Object now = orThrow(PyIter_Next(launch.clock.ptr()));
  if (PyObject_SetAttr(owner.ptr(), usedName, now.ptr()))
    throw py::error_already_set();
  std::array<Object, mostTensors> made;
  std::array<uint64_t, 2 * mostTensors> known;
  size_t count = 0;
  const auto add = [&](const DLTensor &tensor) {
    known[count++] = reinterpret_cast<uint64_t>(tensor.data) + tensor.offset;
  };
  for (Py_ssize_t i = 0; i < asked.count; ++i)
    add(asked.tensors[static_cast<size_t>(i)]);
  DLTensor tensor;
  for (size_t i = 0; i < launch.likes.size(); ++i) {
    made[i] = orThrow(PyObject_CallOneArg(library->emptyLike, launch.likes[i].ptr()));
    if (!read(made[i].ptr(), tensor))
      return {};
    add(tensor);
  }
  for (const Object &each : launch.kept) {
    if (!read(each.ptr(), tensor))
      return {};
    add(tensor);
  }
  std::array<uint64_t, mostTensors> addresses;
  for (size_t i = 0; i < launch.places.size(); ++i)
    addresses[i] = known[launch.places[i]];
  AttnStatus status{AttnStatusOk, nullptr};
  {
    py::gil_scoped_release release;
    status = attnPlanRunStrided(launch.plan, addresses.data(), launch.bytes.data(),
                                launch.isStrided ? launch.lies.data() : nullptr, launch.places.size(),
                                asked.stream);
  }
  const bool isDone = status.kind == AttnStatusOk;
  attnStatusFree(status);
  if (PyErr_Occurred()) // by a signal handler
    throw py::error_already_set();
  if (!isDone)
    return {};
  const auto result = [&](int32_t which) {
    if (which < 0)
      return py::none().cast<Object>();
    return which < asked.count ? py::reinterpret_borrow<Object>(PyTuple_GET_ITEM(tensors, which))
                               : made[static_cast<size_t>(which - asked.count)];
  };
  if (!launch.isTuple)
    return result(launch.results[0]);
  py::tuple results(launch.results.size());
  for (size_t i = 0; i < launch.results.size(); ++i)
    PyTuple_SET_ITEM(results.ptr(), static_cast<Py_ssize_t>(i), result(launch.results[i]).release().ptr());
  return std::move(results);
}

Object runLaunches(Launches &launches, PyObject *tensors, PyObject *options) {
  Asked asked;
  if (!launches.size() || !asked.read(tensors, options, false))
    return py::none();
  const uint64_t hash = asked.key.hash();
  Launches::Entry *entry = launches.find(asked.key, hash);
  if (!entry)
    return py::none();
  if (const Object call = entry->call)
    return orThrow(PyObject_CallObject(call.ptr(), tensors));
  const std::shared_ptr<const Launch> launch = entry->launch;
  if (Object results = launched(*launch, asked, tensors))
    return results;
  return py::none();
}

/// `make` is called only where the call can be found again. It gives a Launch, somebody who is called with
/// the tensors, or None.
void addLaunch(Launches &launches, PyObject *tensors, PyObject *options, PyObject *make) {
  Asked asked;
  if (!asked.read(tensors, options, true))
    return;
  const Object what = orThrow(PyObject_CallNoArgs(make));
  if (what.is_none())
    return;
  Launches::Entry entry;
  if (!py::isinstance<Launch>(what)) {
    entry.call = what;
  } else {
    entry.launch = what.cast<std::shared_ptr<Launch>>();
    const Launch &launch = *entry.launch;
    const size_t known = static_cast<size_t>(asked.count) + launch.likes.size() + launch.kept.size();
    for (uint16_t place : launch.places)
      if (place >= known)
        raise("input", "places: expected numbers of tensors that are given, made or kept");
    for (int32_t result : launch.results)
      if (result >= static_cast<int32_t>(known - launch.kept.size()))
        raise("input", "results: expected numbers of tensors that are given or made");
    if (known > 2 * mostTensors || launch.places.size() > mostTensors || launch.likes.size() > mostTensors)
      return;
  }
  launches.add(asked.key, std::move(entry));
}

// The class is written without pybind11, whose calls cost more than all that `run` does.

struct LaunchesObject {
  PyObject_HEAD Launches *launches;
};

template <typename Call> PyObject *translated(Call call) {
  try {
    return call().release().ptr();
  } catch (py::error_already_set &error) {
    error.restore();
  } catch (const std::exception &error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

Launches &of(PyObject *self) { return *reinterpret_cast<LaunchesObject *>(self)->launches; }

PyObject *run(PyObject *self, PyObject *const *given, Py_ssize_t count) {
  if (count != 2) {
    PyErr_SetString(PyExc_TypeError, "run: expected tensors and options");
    return nullptr;
  }
  return translated([&] { return runLaunches(of(self), given[0], given[1]); });
}

PyObject *add(PyObject *self, PyObject *const *given, Py_ssize_t count) {
  if (count != 3) {
    PyErr_SetString(PyExc_TypeError, "add: expected tensors, options, and what makes a Launch");
    return nullptr;
  }
  return translated([&]() -> Object {
    addLaunch(of(self), given[0], given[1], given[2]);
    return py::none();
  });
}

PyObject *clear(PyObject *self, PyObject *) {
  of(self).clear();
  Py_RETURN_NONE;
}

Py_ssize_t sizeOf(PyObject *self) { return static_cast<Py_ssize_t>(of(self).size()); }

PyObject *make(PyTypeObject *type, PyObject *, PyObject *) {
  PyObject *self = type->tp_alloc(type, 0);
  if (self)
    reinterpret_cast<LaunchesObject *>(self)->launches = new Launches;
  return self;
}

void destroy(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  delete reinterpret_cast<LaunchesObject *>(self)->launches;
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject *makeType() {
  static PyMethodDef methods[] = {
      {"run", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&run)), METH_FASTCALL, nullptr},
      {"add", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&add)), METH_FASTCALL, nullptr},
      {"clear", &clear, METH_NOARGS, nullptr},
      {nullptr, nullptr, 0, nullptr}};
  static PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void *>(&make)},
                                {Py_tp_dealloc, reinterpret_cast<void *>(&destroy)},
                                {Py_tp_methods, methods},
                                {Py_mp_length, reinterpret_cast<void *>(&sizeOf)},
                                {0, nullptr}};
  static PyType_Spec spec{"attn._attn.Launches", sizeof(LaunchesObject), 0, Py_TPFLAGS_DEFAULT, slots};
  return orThrow(PyType_FromSpec(&spec)).release().ptr();
}

/// Whether launches of PyTorch's tensors are found from now on: where it lets them be read.
bool readTensors(const py::type &tensor, const py::type &parameter, const Object &emptyLike,
                 const Object &isGradEnabled, const py::dict &forwardMode, const py::tuple &values,
                 const py::tuple &constants) {
  if (library)
    return true;
  const Object capsule = py::getattr(tensor, "__dlpack_c_exchange_api__", py::none());
  if (!PyCapsule_CheckExact(capsule.ptr()))
    return false;
  const auto *exchange =
      static_cast<const DLExchange *>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  if (!exchange)
    throw py::error_already_set();
  if (exchange->major != 1 || !exchange->read || !exchange->stream)
    return false;
  const auto kept = [](const Object &object) { return Object(object).release().ptr(); };
  library = new Library{reinterpret_cast<PyTypeObject *>(kept(tensor)),
                        reinterpret_cast<PyTypeObject *>(kept(parameter)),
                        exchange,
                        kept(py::getattr(tensor, "is_neg")),
                        kept(emptyLike),
                        kept(isGradEnabled),
                        kept(forwardMode),
                        kept(values),
                        kept(constants),
                        py::dict().release().ptr()};
  return true;
}

} // namespace

void bindLaunches(py::module_ &module) {
  using namespace py::literals;
  for (auto [name, text] : {std::pair(&levelName, "_current_level"),
                            {&needsGradientName, "requires_grad"},
                            {&acquireName, "acquire"},
                            {&releaseName, "release"},
                            {&aliveName, "alive"},
                            {&usedName, "used"}})
    *name = PyUnicode_InternFromString(text);
  pthread_atfork(nullptr, nullptr, [] { ++forks; });
  py::class_<Launch, std::shared_ptr<Launch>>(module, "Launch")
      .def(py::init(&makeLaunch), py::kw_only(), "owner"_a, "plan"_a, "lock"_a = py::none(), "clock"_a,
           "places"_a, "nbytes"_a, "strides"_a, "likes"_a, "kept"_a, "results"_a);
  module.def("read_tensors", &readTensors, py::kw_only(), "tensor"_a, "parameter"_a, "empty_like"_a,
             "is_grad_enabled"_a, "forward_mode"_a, "values"_a, "constants"_a);
  module.add_object("Launches", makeType());
}

} // namespace attn::python
