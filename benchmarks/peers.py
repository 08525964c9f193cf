"""What PyTorch offers for the same attention, and how it is timed.

cuDNN and FlashAttention are backends of scaled_dot_product_attention; FlexAttention is compiled with a block
mask. All get what a model would give them: [batch, heads, tokens, dim] in bf16, grouped heads as they are. A
backend that declines grouped heads gets keys and values of every query head in prefill, where it reads them from
the L2 (it says so in its name); in decode that would be other work. FlashInfer takes part where it is installed.
"""

import importlib
import math
import warnings

import flashinfer_peer


class Timer:
    """Milliseconds of a function on the GPU: the median of repeats, each after a flush of the L2 cache.

    The flush is attn-run's: it reads four times the cache. If it wrote, the function would pay for writing back.
    """

    SLEEP = 1_000_000  # cycles: the GPU waits so long before each start that Python's overhead is hidden
    ENOUGH = 0.5  # seconds that all repeats together may take

    def __init__(self, torch, repeats):
        self.torch, self.repeats = torch, repeats
        self.l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
        self.source = torch.zeros(4 * self.l2_bytes, dtype=torch.uint8, device="cuda")
        self.target = torch.zeros(self.l2_bytes // 16, dtype=torch.uint8, device="cuda")

    def flush(self):
        step = self.target.numel()
        for offset in range(0, self.source.numel() - step + 1, step):
            self.target.copy_(self.source[offset : offset + step])

    def once(self, function):
        cuda = self.torch.cuda
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        self.flush()
        cuda._sleep(self.SLEEP)
        start.record()
        function()
        end.record()
        cuda.synchronize()
        return start.elapsed_time(end)

    def __call__(self, function):
        function()  # compiles, allocates
        seconds = self.once(function) / 1e3
        repeats = max(3, min(self.repeats, int(self.ENOUGH / seconds)))
        times = sorted(self.once(function) for _ in range(repeats))
        return times[len(times) // 2]


def measured_peaks(torch, timer):
    """Copy bandwidth in bytes per second (read and written) and bf16 matrix rate in FLOP/s."""
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    bandwidth = 2 * source.numel() / timer(lambda: target.copy_(source)) * 1e3
    a = torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda")
    b = torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda")
    return bandwidth, 2 * 8192**3 / timer(lambda: a @ b) * 1e3


def reason(error, said=()):
    """One line of an exception, whose texts can be pages, and of the warnings before it."""
    texts = [str(error).strip() or type(error).__name__, *(str(warning.message) for warning in said)]
    return "; ".join(dict.fromkeys(text.splitlines()[0].strip() for text in texts))[:240]


def causal_mask(batch, head, query, key):
    return query >= key


class Peers:
    """Times of every peer that takes a point, by name, and the reasons of those that do not."""

    def __init__(self, torch, timer, device="cuda"):
        self.torch, self.timer, self.device = torch, timer, device
        self.compiled_for = self.flex = None

    def __call__(self, point, names=("cudnn", "flash", "flex", "flashinfer")):
        problem, tokens = point.problem, point.lengths[0]
        rows = point.rows or tokens
        batch = len(point.lengths)

        def random(heads, length, dim):
            shape = (batch, heads, length, dim)
            return self.torch.randn(shape, dtype=self.torch.bfloat16, device=self.device)

        q = random(problem.q_heads, rows, problem.dim)
        k = random(problem.kv_heads, tokens, problem.dim)
        v = random(problem.kv_heads, tokens, problem.value_dim)
        causal = rows > 1 and problem.see == "causal"  # the one row of a decoding step sees everything
        times, declined = {}, {}
        for name in ("cudnn", "flash"):
            if name in names:
                self.try_backend(name, (q, k, v), causal, rows > 1, times, declined)
        try:
            if "flex" in names:
                times["flex"] = self.timer(self.flex_attention(q, k, v, causal))
        except Exception as error:  # needs Triton and a C compiler, and raises errors of many types
            declined["flex"] = reason(error)
        if "flashinfer" in names:
            self.try_flashinfer((q, k, v), causal, times, declined)
        del q, k, v
        if self.device == "cuda":
            self.torch.cuda.empty_cache()  # attn-run is another process
        return times, declined

    def try_backend(self, name, tensors, causal, may_expand, times, declined):
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from torch.nn.functional import scaled_dot_product_attention as sdpa

        backend = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}[name]
        q, k, v = tensors

        def attempt(label, k, v):
            gqa = q.shape[1] != k.shape[1]
            with warnings.catch_warnings(record=True) as said:  # PyTorch warns why before it raises that
                try:
                    with sdpa_kernel(backend):
                        times[label] = self.timer(lambda: sdpa(q, k, v, is_causal=causal, enable_gqa=gqa))
                except RuntimeError as error:
                    declined[label] = reason(error, said)
            return label in times

        if not attempt(name, k, v) and may_expand:
            group = q.shape[1] // k.shape[1]
            attempt(f"{name}, heads expanded", *(x.repeat_interleave(group, 1) for x in (k, v)))

    def try_flashinfer(self, tensors, causal, times, declined):
        try:
            flashinfer = importlib.import_module("flashinfer")
        except ImportError:
            declined["flashinfer"] = "is not installed"
            return
        try:
            if tensors[0].shape[2] == 1:
                run = flashinfer_peer.decode(flashinfer, self.torch, *tensors)
            elif tensors[0].shape[0] == 1:
                run = flashinfer_peer.prefill(flashinfer, *tensors, causal)
            else:
                declined["flashinfer"] = "prefill is asked of it for one sequence"
                return
            times["flashinfer"] = self.timer(run)
        except Exception as error:  # compiles with nvcc, and raises errors of many types
            declined["flashinfer"] = reason(error)

    def flex_attention(self, q, k, v, causal):
        """A function that runs it. Lengths are marked as dynamic, so that the first of a problem is compiled for
        itself and the others share a compilation where PyTorch can; decoding is compiled for every shape."""
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        decode = q.shape[2] == 1
        key = (q.shape[:2], q.shape[3], k.shape[1], causal, decode)
        if key != self.compiled_for:
            self.torch._dynamo.reset()
            self.compiled_for, self.flex = key, self.torch.compile(flex_attention)
        for tensor, dim in ((q, 2), (k, 2), (v, 2)):
            if not decode:
                self.torch._dynamo.maybe_mark_dynamic(tensor, dim)
        mask = None
        if causal:
            mask = create_block_mask(causal_mask, None, None, q.shape[2], k.shape[2], device=self.device)
        gqa = q.shape[1] != k.shape[1]
        scale = 1 / math.sqrt(q.shape[3])
        return lambda: self.flex(q, k, v, block_mask=mask, scale=scale, enable_gqa=gqa)
