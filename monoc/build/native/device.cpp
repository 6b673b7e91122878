// Stand-in for FlyDSL's GPU runtime library: the `mgpu*` functions that the host code FlyDSL compiles
// calls to load a module and to launch a kernel (MLIR's GPU runner ABI, LLVM's
// mlir/lib/ExecutionEngine/RocmRuntimeWrappers.cpp). Loading keeps the assembly text; a launch is
// handed to one Python callable, the sink. Nothing here knows a kernel.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace nb = nanobind;

namespace {

struct Module;

struct Function {
  Module* module;
  std::string name;
};

struct Module {
  std::string text;
  PyObject* python_text = nullptr;  // the same, made once: it is megabytes and goes along with every launch
  std::map<std::string, std::unique_ptr<Function>> functions;
};

// Set once, when monoc.build.device is imported; the C ABI below leaves no other way to reach Python.
PyObject* launch_sink = nullptr;
PyObject* occupancy_sink = nullptr;

}  // namespace

#define MONOC_EXPORT extern "C" __attribute__((visibility("default")))

MONOC_EXPORT void* mgpuModuleLoadJIT(void* data, int) {
  auto* module = new Module;
  module->text = static_cast<const char*>(data);
  return module;
}

MONOC_EXPORT void* mgpuModuleLoad(void* data, size_t size) {
  auto* module = new Module;
  module->text.assign(static_cast<const char*>(data), size);
  return module;
}

MONOC_EXPORT void mgpuModuleUnload(void* handle) {
  auto* module = static_cast<Module*>(handle);
  if (module->python_text != nullptr && Py_IsInitialized()) {
    nb::gil_scoped_acquire gil;
    Py_DECREF(module->python_text);
  }
  delete module;
}

MONOC_EXPORT void* mgpuModuleGetFunction(void* handle, const char* name) {
  auto* module = static_cast<Module*>(handle);
  nb::gil_scoped_acquire gil;  // also guards the map: several host threads launch from one module
  auto& slot = module->functions[name];
  if (!slot) slot = std::make_unique<Function>(Function{module, name});
  return slot.get();
}

MONOC_EXPORT void mgpuLaunchKernel(void* function, intptr_t grid_x, intptr_t grid_y, intptr_t grid_z,
                                   intptr_t block_x, intptr_t block_y, intptr_t block_z, int32_t lds,
                                   void* stream, void** params, void** /*extra*/, size_t count) {
  auto* f = static_cast<Function*>(function);
  nb::gil_scoped_acquire gil;
  if (launch_sink == nullptr) return;
  try {
    Module& module = *f->module;
    if (module.python_text == nullptr) module.python_text = nb::cast(module.text).release().ptr();
    nb::list addresses;
    for (size_t i = 0; i < count; ++i) addresses.append(reinterpret_cast<uintptr_t>(params[i]));
    nb::borrow<nb::callable>(launch_sink)(
        nb::borrow(module.python_text), f->name, nb::make_tuple(grid_x, grid_y, grid_z),
        nb::make_tuple(block_x, block_y, block_z), lds, reinterpret_cast<uintptr_t>(stream), addresses);
  } catch (nb::python_error& error) {
    // The sink stores its own failures for the caller; an error here is a defect of the sink itself.
    error.discard_as_unraisable("monoc.build device runtime");
  }
}

MONOC_EXPORT int32_t mgpuModuleOccupancyMaxActiveBlocks(const void* data, const char* name, int32_t threads,
                                                        int32_t lds) {
  nb::gil_scoped_acquire gil;
  if (occupancy_sink == nullptr) return 0;
  try {
    auto text = std::string(static_cast<const char*>(data));
    return nb::cast<int32_t>(nb::borrow<nb::callable>(occupancy_sink)(text, name, threads, lds));
  } catch (nb::python_error& error) {
    error.discard_as_unraisable("monoc.build device runtime");
    return 0;
  }
}

NB_MODULE(_device, m) {
  m.doc() = "Device runtime that keeps gfx9 assembly text and hands launches to Python.";
  m.def(
      "set_sinks",
      [](nb::callable launch, nb::callable occupancy) {
        launch_sink = launch.inc_ref().ptr();
        occupancy_sink = occupancy.inc_ref().ptr();
      },
      nb::arg("launch"), nb::arg("occupancy"),
      "launch(text, symbol, grid, block, lds, stream, parameter_addresses) and "
      "occupancy(text, symbol, threads, lds) -> CTAs a CU.");
}
