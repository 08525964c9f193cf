//===- Launches.cpp - Prepared launches, by memory layout of tensors -------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A call of a known form costs this: the tensors of PyTorch and the options become one list of integers
// (LaunchKeys.h), which is the key of the launch; it lacks only the addresses. A call with anything new is
// not found. Then Python does all the work (attn/run/launches.py), and adds the launch.
//
//===----------------------------------------------------------------------===//
#include "LaunchKeys.h"
#include "Objects.h"

#include <list>
#include <memory>
#include <optional>
#include <unordered_map>

namespace attn::python {

namespace {

PyObject *acquireName, *releaseName, *aliveName, *usedName;

constexpr size_t mostEntries = 128;

/// A launch of a plan that lacks only the addresses.
struct Launch {
  Object owner; ///< a weak reference to the plan's owner, which may let it go
  Object lock;  ///< the lock of the owner, which may give its plan to others; or None
  Object clock; ///< numbers the uses of owners
  AttnPlan *plan;
  /// For each slot, the index of its address among the given tensors, followed by the made ones, followed by
  /// the kept ones.
  std::vector<uint16_t> places;
  std::vector<size_t> bytes;
  std::vector<std::vector<int64_t>> strides;
  std::vector<const int64_t *> lies;
  bool isStrided = false;
  std::vector<Object> likes; ///< results are made by empty_like of these, which are on the CPU
  Object device;             ///< of the results
  Object named;              ///< the names of empty_like's arguments: ("device",)
  std::vector<Object> kept;
  std::vector<int32_t> results; ///< indices among the given and made tensors; -1: None
  bool isTuple;
};

Launch makeLaunch(const Object &owner, const Plan &plan, const Object &lock, const Object &clock,
                  const std::vector<uint16_t> &places, const std::vector<size_t> &bytes,
                  const std::vector<std::optional<std::vector<int64_t>>> &strides, std::vector<Object> likes,
                  const Object &device, std::vector<Object> kept, const py::object &results) {
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
    if (each) // missing strides are invalid, and refused
      launch.strides.back().resize(std::max<size_t>(each->size(), 8));
  }
  launch.strides.resize(places.size());
  for (const auto &each : launch.strides)
    launch.lies.push_back(each.empty() ? nullptr : each.data());
  launch.likes = std::move(likes);
  launch.device = device;
  launch.named = py::make_tuple("device");
  launch.kept = std::move(kept);
  launch.isTuple = py::isinstance<py::tuple>(results);
  for (py::handle each : launch.isTuple ? py::tuple(results) : py::make_tuple(results))
    launch.results.push_back(each.is_none() ? -1 : each.cast<int32_t>());
  if (bytes.size() != places.size())
    raise("input", "expected as many sizes as places");
  return launch;
}

class Launches {
public:
  /// The value of a key: a launch, or a function that does the work.
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
    const Entry old = take(hash); // freed at the end of the scope: that may run Python code
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

/// Holds the owner's lock, if it has one and no other thread holds it.
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
    PyObject *type, *value, *trace; // the exception of an interrupt
    PyErr_Fetch(&type, &value, &trace);
    Py_XDECREF(PyObject_CallMethodNoArgs(lock_.ptr(), releaseName));
    PyErr_Restore(type, value, trace);
  }
  bool isHeld() const { return isHeld_; }

private:
  Object lock_;
  bool isTaken_ = false, isHeld_ = false;
};

/// Launches, and returns the results. Null if it cannot: then nothing was launched, or the call itself fails
/// in the same way.
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
    std::array<PyObject *, 2> arguments = {launch.likes[i].ptr(), launch.device.ptr()};
    made[i] = orThrow(PyObject_Vectorcall(emptyLike(), arguments.data(), 1, launch.named.ptr()));
    if (!readTensor(made[i].ptr(), tensor))
      return {};
    add(tensor);
  }
  for (const Object &each : launch.kept) {
    if (!readTensor(each.ptr(), tensor))
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
  if (PyErr_Occurred()) // raised by a signal handler
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

/// Adds a launch. `make` is called only if the call can be found again; it returns a Launch, a function that
/// is called with the tensors, or None.
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

// The class is written without pybind11, whose calls cost more than all the work of `run`.

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

} // namespace

void bindLaunches(py::module_ &module) {
  using namespace py::literals;
  bindLaunchKeys(module);
  for (auto [name, text] : {std::pair(&acquireName, "acquire"),
                            {&releaseName, "release"},
                            {&aliveName, "alive"},
                            {&usedName, "used"}})
    *name = PyUnicode_InternFromString(text);
  py::class_<Launch, std::shared_ptr<Launch>>(module, "Launch")
      .def(py::init(&makeLaunch), py::kw_only(), "owner"_a, "plan"_a, "lock"_a = py::none(), "clock"_a,
           "places"_a, "nbytes"_a, "strides"_a, "likes"_a, "device"_a, "kept"_a, "results"_a);
  module.add_object("Launches", makeType());
}

} // namespace attn::python
