# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The extension: numbers, bytes, strings, buffers and addresses over the C API (include/attn-c).

It knows of torch only what `read_tensors` is told, and of NumPy only the buffer protocol and DLPack. Calls that take
time release the GIL. All objects may be used from several threads: calls on one object, and launches on one device, run
one after the other. A refused call raises `Failure`; wrong Python types raise `TypeError`.

Addresses cannot be checked: a caller who gives one guarantees that so many bytes lie there.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypedDict

from typing_extensions import Buffer

Level = Literal["problem", "online", "tile", "machine", "ptx", "cubin", "manifest"]
Form = Literal["host", "ptx", "cubin"]

# A tensor: anything with the buffer protocol, C-contiguous, whose format gives the dtype ("i" i32, "e" f16,
# "f" f32, "d" f64, …); or (dtype, shape, bytes) for the dtypes that buffers do not have. Dtypes: f16, bf16,
# f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, bool. Instead of the bytes, an int is the address of CPU
# memory, and None a tensor that is only described (if that is enough: Kernel.batch).
Tensor = Buffer | tuple[str, Sequence[int], Buffer | int | None]

# Requests beside a text (AttnAsks in include/attn-c/Compiler.h; attn.compiler.requests.Asks):
#
# - the tables that get gradients, beside queries, keys and values, or None for no gradients
# - whether gradients are the same bits in every run, or None for the compiler's choice
# - the significance, or None
# - the number of rows that count for it, or None
# - whether a kernel that makes plans comes with it
#
# A text that asks for the same with another value is refused.
Asks = tuple[Sequence[str] | None, bool | None, str | None, int | None, bool]

class Failure(Exception):
    """The compiler or the runtime refused a call. args == (kind, message)."""

    kind: Literal["input", "device", "memory", "check", "internal"]
    message: str

def build_info() -> dict[str, str]:
    """Return facts about the build: `version` of attn; `producer`, which changes whenever the compiler's code does and
    is part of every cache key; `llvm`; `host_target` ("x86-64-v3", "x86-64-v2"), for which this process makes and loads
    host code; `host_abi`, its version; `ptxas`, a path, or "" if there is none."""

def identify_ptxas() -> str:
    """Return the hash of the assembler's file, which is read each time; "" if there is no `ptxas`."""

def dtypes() -> dict[str, int]:
    """Return all dtypes, and the bytes of an element of each."""

def targets() -> list[str]:
    """Return the chips to compile for, the oldest first: "sm_80", "sm_86", …"""

class Compiled:
    artifact: bytes
    """One file (attn_rt/artifact/Artifact.h): the manifest and the code in the requested forms, with their hashes."""
    manifest: str
    remarks: list[str]
    """Remarks of the compiler, "name:line:col: remark: …", such as why a schedule was chosen."""
    seconds: dict[str, float]
    """Seconds by stage: `lower`, and of the requested forms `ptx`, `cubin`, `host`."""
    ptxas: str
    """The output of ptxas -v (registers, spills); "" without the form cubin."""

def compile(
    text: str,
    *,
    entry: str = "",
    target: str = "sm_90a",
    schedule: str = "auto",
    asks: Asks = (None, None, None, None, False),
    forms: Sequence[Form] = ("host",),
    checked: bool = False,
    name: str = "spec",
) -> Compiled:
    """Compile MLIR text to an artifact. `forms`: "host" is native code for the host device (with `checked` instrumented
    for its detectors), "ptx" and "cubin" are for a GPU (a cubin needs ptxas; keep "ptx" beside it for other GPUs).
    `entry`: the function, if the text has several. Errors have the compiler's words, "name:line:col: error: …", with
    the line of the text."""

class Artifact(TypedDict):
    """A compiled function of a file."""

    entry: str
    target: str
    producer: str
    note: str
    forms: list[Form]
    file: bytes
    """A file with this function alone."""

def read_artifacts(file: Buffer, name: str = "kernel") -> list[Artifact]:
    """Return all compiled functions of a file. Refuses the files that Kernel refuses. `name`: the file's, for messages."""

def join_artifacts(parts: Sequence[tuple[Buffer, str]]) -> bytes:
    """Join files into one, each with a note."""

def emit(
    text: str,
    level: Level,
    *,
    entry: str = "",
    target: str = "sm_90a",
    schedule: str = "auto",
    asks: Asks = (None, None, None, None, False),
    name: str = "spec",
) -> bytes:
    """Return the output of `attn-opt --emit=level`."""

def check(text: str, *, entry: str = "", name: str = "spec") -> str:
    """Parse and verify a text; returns the problem level, with defaults filled in. Takes about a millisecond."""

def reference(
    text: str,
    tensors: Mapping[str, Tensor],
    *,
    entry: str = "",
    asks: Asks = (None, None, None, None, False),
    name: str = "spec",
    threads: int = 0,
) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Compute a text's results in float64 (unstable part of the C API). `tensors`: by the names in the text; defaults
    are filled in (q_start, q_pos, <arg>.pos0, <arg>.rows). Returns `o` f64[rows, q_heads, value_dim] and `lse`
    f64[rows, q_heads] as (dtype, shape, bytes); of an operation on a cache the tensors after it. `threads` 0: one per
    core."""

def reference_gradients(
    text: str, tensors: Mapping[str, Tensor], *, entry: str = "", name: str = "spec", threads: int = 0
) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Compute the float64 gradients of an attention, with tensors as in `reference`, and `do` [rows, q_heads,
    value_dim] and optionally `dlse` [rows, q_heads], floats. Returns `dq`, `<arg>.dk`, `<arg>.dv`, `dsink_logits`, and
    `d<name>` of each tensor that the score reads."""

def store_tensors(
    *,
    store: Literal["dense", "packed", "paged"],
    page: int = 0,
    ragged: bool = False,
    heads: int,
    key_dim: int,
    value_dim: int,
    key: str,
    value: str,
) -> str:
    """Return JSON: the tensors of a KV operand's store in these formats ("bf16", "f8e4m3fn per head", "i4 per 64",
    "i4"), as attn-c/Runtime.h says. `heads` 0: the heads of its head class."""

def quantize(format: str, dim: int, numbers: Buffer, meta: Buffer, codes: Buffer, scale: float = 1.0) -> int:
    """Quantize rows of `dim` f32, as kernels do. `meta`: the metadata of the rows, in order; written if the format
    computes them by token, else read. `scale`: the tensor's scale beside it. Returns how many numbers were not finite;
    these are clamped."""

def dequantize(
    format: str, dim: int, codes: Buffer, meta: Buffer, numbers: Buffer, scale: float = 1.0
) -> None:
    """Convert quantized rows back to f32."""

class View:
    """Memory of anything with `__dlpack__` or the buffer protocol, which it keeps alive; nothing is copied. `stream` is
    passed to `__dlpack__` for memory of a GPU. Refuses memory of other devices, and dtypes without a name."""

    def __init__(self, tensor: object, *, stream: int | None = None) -> None: ...
    address: int
    nbytes: int
    """Bytes of the elements; the memory may reach further if strides have gaps."""
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In elements."""
    contiguous: bool
    device: Literal["cpu", "cuda"]
    index: int
    readonly: bool

def read_tensors(
    *,
    tensor: type,
    parameter: type,
    empty_like: Callable[[object], object],
    is_grad_enabled: Callable[[], bool],
    forward_mode: dict[str, object],
    values: tuple[type, ...],
    constants: tuple[type, ...],
) -> bool:
    """Tell the extension how to read PyTorch's tensors. Returns whether launches can be found for them: `tensor` has
    `__dlpack_c_exchange_api__`. `forward_mode`: the names of torch.autograd.forward_ad. `values` and `constants`: types
    of options that never change; `values` are compared, `constants` by identity."""

class Launch:
    """A launch of a plan that lacks only the addresses."""

    def __init__(
        self,
        *,
        owner: object,
        plan: Plan,
        lock: object = None,
        clock: Iterator[int],
        places: Sequence[int],
        nbytes: Sequence[int],
        strides: Sequence[Sequence[int] | None],
        likes: Sequence[object],
        device: object,
        kept: Sequence[object],
        results: int | tuple[int | None, ...],
    ) -> None:
        """Prepare a launch.

        owner    has the plan, `used`, which a launch sets from `clock`, and with a lock `alive`; it is not kept alive
        lock     held during a launch. While another thread holds it, nothing is launched here
        places   for each slot: the index of its tensor in the given ones, followed by `likes`, followed by `kept`
        likes    results are made on `device` by empty_like of these
        results  the indices of a launch's results among all these, one or a tuple; None for None
        """

class Launches:
    """Launches by the memory layout of tensors (or of views in place of tensors, memory/views.py), by which tensors
    require a gradient, by the current stream, and by options. Options are None, numbers, objects of the types of
    `read_tensors`, and lists, arrays and tensors of int32 and int64 on the CPU, by their contents. Keeps up to 128;
    then drops the oldest."""

    def run(self, tensors: tuple[object, ...], options: tuple[object, ...]) -> Any:
        """Launch, and return the results. None if no launch was prepared for such a call, or if it cannot be launched
        now; then nothing is launched that the call itself would not launch again."""

    def add(
        self, tensors: tuple[object, ...], options: tuple[object, ...], make: Callable[[], object]
    ) -> None:
        """Add the result of `make`: a Launch, a function that is called with the tensors instead, or None. `make` is
        called only if such a call could be found again."""

    def clear(self) -> None: ...
    def __len__(self) -> int: ...

def cuda_devices() -> int:
    """Return the number of GPUs that a driver finds; 0 without a driver."""

class Device:
    """A device that runs kernels. Lives as long as anything that was made on it."""

    @staticmethod
    def host(*, checked: bool = False, seed: int = 0, shuffle: bool = False, threads: int = 0) -> Device:
        """Make the executor. `checked`: detectors and counters, for kernels compiled with `checked`. Results never
        depend on `threads` (0: one per core)."""
    @staticmethod
    def cuda(index: int = 0, *, library: str = "libcuda.so.1") -> Device: ...
    kind: Literal["host", "cuda"]
    index: int
    name: str
    target: str
    """The target of its own code (sm_90a for an H100); for the host sm_90a."""
    form: Form
    """The form of code that it loads: "host" or "ptx"."""
    properties: dict[str, int]
    """multiprocessors, shared_bytes, l2_bytes, memory_bytes, compute_capability (90), driver_version (12040)."""

    def synchronize(self, stream: int = 0) -> None: ...
    def capture(self, stream: int = 0) -> int:
        """Return the number of the stream's capture into a graph, another one for each capture; 0 if there is none."""
    def allocate(self, nbytes: int, label: str = "memory") -> Memory: ...
    def report(self) -> dict[str, object]:
        """Return the report of a checked host device since the last reset: `races`, `uninitialized`, `out_of_bounds`,
        `misaligned`, `sync`, `deadlocks`, `clean` (bool), `findings` (list of str), `text`, and the counters
        `bytes_read`, `bytes_written`, `bytes_partials`, `sector_efficiency`, `bank_conflicts`, `flops`, `seconds`. A
        failure of kind "input" on other devices."""
    def work(self, *, reset: bool = False) -> dict[str, int]:
        """Return the work of a host device since the last reset: `launches`, `copies` to it, `allocations`, and hashes
        over `shapes` (kernels, grids, sizes) and all `arguments`. A failure of kind "input" on other devices."""
    def reset_report(self) -> None: ...

class Memory:
    """Memory of a device. Freed with the object: keep it as long as launches use it. On a checked host device it counts
    as unwritten until the first write, and has exact bounds."""

    address: int
    nbytes: int

    def copy_in(self, data: Buffer, offset: int = 0) -> None: ...
    def copy_out(self, data: Buffer, offset: int = 0) -> None:
        """Copy into a writable buffer, after all launches (on the default stream)."""
    def fill(self, byte: int) -> None: ...
    def poison(self) -> None:
        """Fill with NaN; on the host device the memory counts as unwritten again."""

class Kernel:
    """A compiled function on a device. The code is loaded once and shared by all plans."""

    def __init__(self, artifact: Buffer, device: Device, name: str = "kernel", *, entry: str = "") -> None:
        """Load the function `entry` of a file of artifacts ("": the only one). Refuses files that are damaged or of
        another version, functions that are not there, code for other targets, and host code of another CPU target or
        ABI version than this process's (build_info). `name`: the file's, for messages."""
    device: Device
    entry: str
    manifest: str
    checked: bool
    is_cache_operation: bool
    """Whether this is an append, move or gather, for CacheKernels and not for plans."""
    slots: tuple[str, ...]
    """The tensors whose addresses `Plan.run` takes, in this order: those of the caller ("q", "kv.k_pages",
    "kv.v_pages", "sink_logits", …, "o", "lse"). With head classes also "ordinal_heads", i32[kv_heads] on the device
    (see ordinal_heads): a layer's permutation. Tables (block_table, lengths, …) belong to the plan."""

    def batch(self, tensors: Mapping[str, Tensor], *, ends: Sequence[int] = ()) -> Batch:
        """Check one problem's sizes. Tables (q_start, q_pos, <arg>.lengths, .pos0, .rows, .block_table, .start,
        classes) have their contents on the CPU; data (q, <arg>.k_pages, …, sinks) are described: (dtype, shape, None).
        Optional tensors have defaults. `ends`: sizes of windows and sinks; empty: as compiled."""
    def ordinal_heads(self, classes: Sequence[int]) -> list[int]:
        """Return the KV head of each ordinal of the plan, for a layer whose heads have these classes."""
    def plan(
        self,
        batch: Batch,
        *,
        strategy: Literal["flatten", "auto", "by-query", "by-node", "by-node-chunk"] = "flatten",
        blocks: int = 0,
        fixed_split: int = 0,
        kernel: int = -1,
        limits: Mapping[str, int] | None = None,
        stream: int = 0,
    ) -> Plan:
        """Plan, and copy plan and tables to the device (on `stream`). Options as in attn_rt/plan/Plan.h. `limits`:
        headroom for later batches: rows, groups, instances_per_row, shared_instances, shared_rows, tokens_per_row,
        instances, pages; by default the batch's own. Without `Plan.fix` buffers grow when they must."""

class Batch:
    rows: int
    sequences: int
    user_row: bytes
    """i32[rows]: the user's row of each row, for a batch made from a cache; else empty. `batch_row` is the inverse."""
    batch_row: bytes
    nodes: list[list[int]]
    """The node of each instance's first token, by operand, for a batch made from a cache."""
    tables: dict[str, tuple[str, tuple[int, ...], bytes]]
    """Tables of all operands of the batch's kernel: (dtype, shape, bytes) by name."""
    floor: dict[str, float]
    """The least that the problem itself needs (unstable part): query_bytes, kv_bytes, table_bytes, result_bytes, whose
    sum is the `bytes_floor` of attn-run, and flops_useful."""

class Plan:
    """One batch's work, with all device memory that it needs: plan, tables, partials. Serves every layer."""

    kernel: Kernel
    slots: tuple[str, ...]
    """The slots of its kernel."""
    nbytes: tuple[int, ...]
    """The least number of bytes that `run` needs for each of `slots`."""
    rows: int

    def update(self, batch: Batch, *, stream: int = 0) -> bool:
        """Plan the next step: True if the plan was only extended. Buffers grow when they must."""
    def grow(self, tokens: int, apart: int, stream: int = 0) -> bool:
        """Plan the next step of a batch of tensors with one packed operand: instances have `tokens` tokens more and are
        `apart` tokens apart, and the positions of rows move by as many."""
    def run(
        self,
        addresses: Sequence[int],
        nbytes: Sequence[int],
        stream: int = 0,
        strides: Sequence[Sequence[int] | None] | None = None,
    ) -> None:
        """Launch, with an address and a number of bytes for each of `slots`, on the caller's CUstream (an int; the host
        device has none). Strides are in bytes, None for dense tensors. Neither allocates nor waits; on the host device
        it ends when the kernel has. Addresses are of the device's memory; the host device takes any memory of this
        process, for the time of the call."""
    def fix(self) -> None:
        """Make launches depend only on buffers' contents from now on (for CUDA graphs): an update that does not fit is
        refused."""
    def on_device(self, tokens: int = 0, stream: int = 0) -> None:
        """Let `make` make the plan of a step on the device from now on. The batch was the largest. The plan is then
        fixed."""
    tables: dict[str, int]
    """The bytes of each tensor whose address `bind` takes, in this order: "plan", memory that plans are written to and
    read from, then the tables that plans are made of. Empty before `on_device`."""
    def bind(self, addresses: Sequence[int], nbytes: Sequence[int]) -> None:
        """Set the addresses that `make` and `run` use from now on; 0: the plan's own memory, or the batch's tables."""
    def make(self, stream: int = 0) -> None:
        """Launch the kernel that makes the plan. Neither allocates nor waits."""
    def fault(self, stream: int = 0) -> str:
        """Return what was wrong with the last tables; "" if nothing was. Waits."""
    def explain(self) -> str: ...
    def svg(self) -> str: ...
    def stats(self) -> dict[str, float | int]:
        """Return kv_bytes, q_bytes, partial_bytes, metadata_bytes, output_bytes, tasks, cuts, blocks, used_blocks,
        merge_rows, balance, flops, seconds (predicted), kernel (index), extended (updates since the last new plan)."""

class Movement:
    """The copies of a change to a cache: tokens within the cache, and new tokens written to it."""

    rows: int
    """New tokens, counted over the call."""
    copies: list[tuple[int, int, int, int, int, int]]
    """(head class, from page, from slot, to page, to slot, tokens)"""
    writes: list[tuple[int, int, int, int, int]]
    """(head class, row, page, slot, tokens)"""
    failed: bool
    """The caller sets it while it writes new tokens: if writing ends early, the cache takes the tokens back."""
    taken_back: bool
    """Whether the cache has taken the tokens back."""

    def execute(
        self,
        *,
        head_class: int,
        page_tokens: int,
        address: int,
        nbytes: int,
        token_bytes: int,
        layers: int = 1,
        layer_bytes: int = 0,
        rows_address: int = 0,
        rows_nbytes: int = 0,
        rows_layer_bytes: int = 0,
    ) -> None:
        """Copy in CPU memory: the keys, or the values, of one class ([layers][pages][page_tokens][token_bytes]), and
        the new tokens [layers][rows][token_bytes]. Copies outside the given bytes are refused before anything moves."""

class Cache:
    """A forest of sequences over pages (attn_rt/cache/Cache.h): bookkeeping only. Nodes are ints; an int never names
    another node. Errors change nothing; exhaustion is a failure of kind "memory"."""

    def __init__(
        self,
        *,
        page_tokens: int = 16,
        draft_page: int = 0,
        classes: Sequence[tuple[str, int, int, int, int]] = (),
    ) -> None:
        """`classes`: (name, pages, recent, sink, draft) of each; recent > 0 is streaming."""
    page_tokens: int
    draft_page: int
    classes: list[tuple[str, int, int, int, int]]

    def create_root(self) -> int: ...
    def append(self, node: int, tokens: int) -> Movement: ...
    def branch(self, node: int, children: int) -> list[int]: ...
    def prune(self, node: int) -> None: ...
    def fork(self, leaf: int) -> tuple[int, Movement]: ...
    def truncate(self, leaf: int, tokens: int) -> Movement: ...
    def evict(self, node: int) -> None: ...
    def speculate(self, leaf: int, parents: Sequence[int]) -> Movement: ...
    def commit(self, leaf: int, token: int) -> Movement: ...
    def apply(
        self,
        *,
        prune: Sequence[int] = (),
        append: Appends | None = None,
        branch: Sequence[tuple[int, int, int]] = (),
    ) -> tuple[list[int], Movement]:
        """Change all or nothing: prune nodes, append to nodes, branch (node, children, tokens of each child). Returns
        the children."""
    def contains(self, node: int) -> bool: ...
    def check_groups(self, groups: RowGroups) -> None:
        """Refuse groups with a node that does not live."""
    def roots(self) -> list[int]: ...
    def children(self, node: int) -> list[int]: ...
    def parent(self, node: int) -> int | None: ...
    def tokens(self, node: int) -> int:
        """Return the number of the node's own tokens."""
    def position(self, node: int) -> int:
        """Return the position of the node's first token."""
    def is_leaf(self, node: int) -> bool: ...
    def is_evicted(self, node: int) -> bool: ...
    def draft_tokens(self, node: int) -> int: ...
    def node_count(self) -> int: ...
    def free_pages(self, head_class: int = 0) -> int: ...
    def places(self, node: int, head_class: int = 0) -> list[tuple[int, int, int, int]]:
        """Return (first token, tokens, page, slot) of each run, in order."""
    def draft_places(self, node: int, head_class: int = 0) -> list[tuple[int, int]]: ...
    is_open: bool
    """Whether new tokens of a living Movement are still to be written. When the cache is used, it takes back the tokens
    of a Movement that does not live, or whose writing failed."""

    def close(self, movement: Movement) -> None:
        """Declare the movement's tokens written."""
    def roll_back(self) -> None:
        """Take the movement's tokens back."""
    def check_invariants(self) -> None: ...

class Appends:
    """The nodes that a step appends to, and a number of tokens for each, in a list, or for all. `read` converts a value
    that is not an int from 0 on; its arguments are "append" or "tokens", and the value."""

    def __init__(self, nodes: list, tokens: int | list, read: Callable[[str, object], int]) -> None: ...
    @property
    def tokens(self) -> int:
        """The number of tokens of all nodes."""
    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Each node with its number of tokens, in order."""

class RowGroups:
    """The requests of a step: nodes, (node, rows) and (node, rows, draft). `read` converts any other request to (node,
    rows, draft); its arguments are the index and the request."""

    def __init__(self, requests: list, read: Callable[[int, object], tuple[int, int, bool]]) -> None: ...
    def __len__(self) -> int: ...
    @property
    def rows(self) -> int:
        """The number of rows without those of drafts."""
    @property
    def drafts(self) -> list[int]:
        """The nodes whose drafts are rows, too."""

class BatchBuilder:
    """Makes batches of one kernel from a cache (attn_rt/cache/CacheBatch.h)."""

    def __init__(
        self,
        kernel: Kernel,
        *,
        operands: Sequence[tuple[int, bool, bool]] = ((0, True, True),),
        max_pages: int = 0,
    ) -> None:
        """`operands`: (head class, shows nodes, shows drafts) of each, as in the kernel's manifest."""
    def build(
        self,
        cache: Cache,
        groups: RowGroups,
        *,
        classes: Sequence[int] = (),
        ends: Sequence[int] = (),
    ) -> Batch:
        """Build a batch. A group is (node, rows, draft): the node's last rows, then with draft all tokens of its draft.
        `classes`: of each KV head, if the kernel has head classes. `ends`: sizes of windows and sinks; empty: as
        compiled."""
    def update(self, cache: Cache, batch: Batch) -> bool:
        """Write the changes of a step that only appended into the batch of the last `build`; False: build again."""

class CacheKernels:
    """Executes Movements on pages in device memory (attn_rt/session/CacheKernels.h)."""

    def __init__(self, append: Kernel, move: Kernel) -> None:
        """Both kernels are of one device and one kind of cache."""
    def reserve(
        self, pages: dict[str, int], *, head_class: int = 0, new_tokens: int, copied_tokens: int
    ) -> None:
        """Make workspace for such movements, and set the addresses of the pages, as of a Requantizer. Addresses are of
        the device's memory; the host device takes any memory of this process, which must outlive this object."""
    def execute(
        self,
        movement: Movement,
        *,
        k: int = 0,
        v: int = 0,
        rows: int = 0,
        k_layer_bytes: int = 0,
        v_layer_bytes: int = 0,
        first_layer: int = 0,
        layers: int = 0,
        stream: int = 0,
    ) -> None:
        """Execute a movement. `k` and `v`: new tokens [layers][rows][heads][dim], of `layers` layers from `first_layer`
        on; 0: all. Neither allocates nor waits; lists are copied in the first layers that a movement is executed in."""
    def append(
        self, list: int, list_nbytes: int, *, k: int, v: int = 0, rows: int, layer: int, stream: int = 0
    ) -> None:
        """Write new tokens of a layer, up to `rows`; their number and slots are in StepTables' `new_tokens`."""
    def move(self, list: int, list_nbytes: int, stream: int = 0) -> None:
        """Copy tokens in all layers. The list is int32 on the device: the number of tokens in the first of 8 words, the
        slots that are read, with capacity for `copied_tokens` rounded up to a multiple of 8, and as many that are
        written."""

class StepTables:
    """Tables of steps over a cache (attn_rt/cache/StepTables.h)."""

    def __init__(
        self,
        kernel: Kernel,
        cache: Cache,
        *,
        sequences: int,
        rows: int,
        new_tokens: int,
        operands: Sequence[tuple[int, bool, bool, int]],
    ) -> None:
        """`operands`: as of BatchBuilder, and the number of entries of a sequence in each operand's block table."""
    @property
    def words(self) -> int:
        """The size of all tables in words of int32."""
    @property
    def places(self) -> dict[str, tuple[int, int]]:
        """The first word and the number of words of each table, by name."""
    def take(self, cache: Cache, movement: Movement) -> None:
        """Make the movement's rows the next new tokens of the step."""
    def check(self) -> None:
        """Refuse if a node of the last update has got or lost tokens since, or was pruned."""
    def append(self, cache: Cache, append: Appends) -> None:
        """Append tokens by Cache.apply, and make them rows of the step."""
    def update(
        self,
        cache: Cache,
        groups: RowGroups,
        address: int,
        nbytes: int,
        stream: int = 0,
    ) -> None:
        """Make the tables of a step and copy to `address` what differs from the last update. Errors change nothing."""

class TableOperation:
    """Operations on pages of many lists and on states of ranks, by tensors in device memory: attn.manage_pages,
    attn.compact_tokens, attn.revise_tokens, attn.merge_states, attn.exchange_states."""

    def __init__(self, kernel: Kernel, sizes: Sequence[int]) -> None: ...
    def launch(self, addresses: Sequence[int], stream: int = 0) -> None:
        """Launch with the addresses of the tensors in the operation's order, at multiples of 16. Neither allocates nor
        waits."""

class Appender:
    """Writes new tokens to any pages, and normalizes or rotates keys and queries on the way (an attn.append with a norm
    or a rotation)."""

    def __init__(self, append: Kernel) -> None: ...
    def reserve(self, rows: int) -> None:
        """Fix the most rows of later launches."""
    def launch(
        self,
        pages: dict[str, int],
        prologue: dict[str, int],
        *,
        k: int,
        v: int,
        rows: int,
        list: int,
        list_nbytes: int,
        stream: int = 0,
    ) -> None:
        """Write one layer's new tokens. `pages` are given by the names of AttnDevicePages, strides as "k_page_stride",
        and `prologue` by those of AttnPrologue (attn-c/Cache.h), as "k_row_bytes". The list is int32 on the device: the
        number of rows in the first of 8 words, then the slots, space for as many as reserved. Neither allocates nor
        waits."""

class Requantizer:
    """Copies slots of one cache to slots of another with fewer bits (attn.requantize)."""

    def __init__(self, requantize: Kernel) -> None: ...
    def reserve(self, slots: int, layers: int) -> None:
        """Make workspace for lists of so many slots."""
    def execute(
        self,
        source: dict[str, int],
        target: dict[str, int],
        from_slots: Sequence[int],
        to_slots: Sequence[int],
        stream: int = 0,
    ) -> None:
        """Copy slots. Pages are given by the names of AttnDevicePages (attn-c/Cache.h), as "k_layer_bytes". A slot is
        skipped if both indices are negative. Neither allocates nor waits."""
    def launch(
        self, source: dict[str, int], target: dict[str, int], list: int, list_nbytes: int, stream: int = 0
    ) -> None:
        """Copy slots that are in a list on the device, as in CacheKernels.move."""
