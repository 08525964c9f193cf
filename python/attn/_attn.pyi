# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The extension: numbers, bytes, strings, buffers and addresses over the C API (include/attn-c).

It knows nothing of torch but what `read_tensors` is told, and of NumPy no more than the buffer protocol and DLPack. Everything that takes time gives
the GIL back. All objects may be used from several threads: calls on one object, and launches on one device, come one
after the other. Whatever is refused raises `Failure`; wrong Python types raise `TypeError`.

Addresses are the one thing that cannot be checked: whoever gives one vouches that so many bytes lie there.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypedDict

from typing_extensions import Buffer

Level = Literal["problem", "online", "tile", "machine", "ptx", "cubin", "manifest"]
Form = Literal["host", "ptx", "cubin"]

# A tensor: anything with the buffer protocol, C-contiguous, whose format says the dtype ("i" i32, "e" f16, "f" f32,
# "d" f64, …); or (dtype, shape, bytes) for the dtypes that buffers do not know. Dtypes: f16, bf16, f32, f64, i8, i16,
# i32, i64, u8, u16, u32, u64, bool. In place of the bytes an int is the address of CPU memory, and None says that the
# tensor is only described (where that is enough: Kernel.batch).
Tensor = Buffer | tuple[str, Sequence[int], Buffer | int | None]

# What is asked of a function beside its text (AttnAsks in include/attn-c/Compiler.h; attn.compiler.requests.Asks):
# tables that get gradients, beside those of queries, keys and values, or None for no gradients; whether gradients are the
# same bits in every run, or None for the compiler's choice; significance and of how many rows, or None; whether a kernel
# that makes plans comes with it. A text that asks for the same with another value is refused.
Asks = tuple[Sequence[str] | None, bool | None, str | None, int | None, bool]

class Failure(Exception):
    """What the compiler or the runtime refused. args == (kind, message)."""

    kind: Literal["input", "device", "memory", "check", "internal"]
    message: str

def build_info() -> dict[str, str]:
    """`version` of attn; `producer`, which changes whenever the compiler's code does: part of every cache key; `llvm`;
    `host_target` ("x86-64-v3", "x86-64-v2"), for which this process makes and loads host code; `host_abi`, its version;
    `ptxas`, a path, or "" where there is none."""

def identify_ptxas() -> str:
    """Which assembler `ptxas` is, by the hash of its file, which is read each time; "" where there is none."""

def dtypes() -> dict[str, int]:
    """The dtypes that there are, and their bytes."""

def targets() -> list[str]:
    """Chips to compile for, the oldest first: "sm_80", "sm_86", …"""

class Compiled:
    artifact: bytes
    """One file (attn_rt/artifact/Artifact.h): manifest, and the code in the forms asked for, with their hashes."""
    manifest: str
    remarks: list[str]
    """What the compiler says without being asked, "name:line:col: remark: …": why a schedule was chosen."""
    seconds: dict[str, float]
    """By stage: `lower`, and of the forms asked for `ptx`, `cubin`, `host`."""
    ptxas: str
    """What ptxas -v printed (registers, spills); "" without the form cubin."""

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
    """MLIR text to an artifact. `forms`: "host" is native code for the host device (with `checked` instrumented for its
    detectors), "ptx" and "cubin" are for a GPU (a cubin needs ptxas; keep "ptx" beside it for other GPUs). `entry`: the
    function, where the text has several. Errors are the compiler's own words, "name:line:col: error: …" with the line
    they are about."""

class Artifact(TypedDict):
    """A compiled function of a file."""

    entry: str
    target: str
    producer: str
    note: str
    forms: list[Form]
    file: bytes
    """A file of it alone."""

def read_artifacts(file: Buffer, name: str = "kernel") -> list[Artifact]:
    """All compiled functions of a file. Refuses what Kernel refuses of files. `name`: the file's, for messages."""

def join_artifacts(parts: Sequence[tuple[Buffer, str]]) -> bytes:
    """One file of all that the files hold, each with what there is to note of it."""

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
    """What `attn-opt --emit=level` prints."""

def check(text: str, *, entry: str = "", name: str = "spec") -> str:
    """Parses and verifies; the problem level, with defaults filled in. Takes about a millisecond."""

def reference(
    text: str,
    tensors: Mapping[str, Tensor],
    *,
    entry: str = "",
    asks: Asks = (None, None, None, None, False),
    name: str = "spec",
    threads: int = 0,
) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """The float64 meaning (unstable part of the C API). `tensors`: names of the design's table; defaults are filled in
    (q_start, q_pos, <arg>.pos0, <arg>.rows). Gives `o` f64[rows, q_heads, value_dim] and `lse` f64[rows, q_heads] as
    (dtype, shape, bytes); of an operation on a cache the tensors it leaves. `threads` 0: one per core."""

def reference_gradients(
    text: str, tensors: Mapping[str, Tensor], *, entry: str = "", name: str = "spec", threads: int = 0
) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """The float64 gradients of an attention, as `reference` takes and gives tensors: of `do` [rows, q_heads, value_dim] and,
    where it is given, `dlse` [rows, q_heads], floats. Gives `dq`, `<arg>.dk`, `<arg>.dv`, `dsink_logits`, and `d<name>` of
    what the score reads."""

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
    """JSON: the tensors that a KV operand's store has in these formats ("bf16", "f8e4m3fn per head", "i4 per 64", "i4"),
    as attn-c/Runtime.h says. `heads` 0: as many as its head class has."""

def quantize(format: str, dim: int, numbers: Buffer, meta: Buffer, codes: Buffer, scale: float = 1.0) -> int:
    """Rows of `dim` f32 to codes, as kernels do it. `meta`: each row's behind the other's, written where the format
    finds it by token, else read; `scale`: the tensor's beside it. Gives how many numbers were not finite; they are clamped."""

def dequantize(
    format: str, dim: int, codes: Buffer, meta: Buffer, numbers: Buffer, scale: float = 1.0
) -> None:
    """The way back, into f32."""

class View:
    """Memory of anything with `__dlpack__` or the buffer protocol, which it keeps alive; nothing is copied. `stream`
    is handed to `__dlpack__` where the memory is a GPU's. Refuses memory of other devices and dtypes without a name."""

    def __init__(self, tensor: object, *, stream: int | None = None) -> None: ...
    address: int
    nbytes: int
    """Of the elements themselves; the memory may reach further where strides have gaps."""
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
    """Whether launches of PyTorch's tensors can be found: where `tensor` has `__dlpack_c_exchange_api__`. `forward_mode`: the
    names of torch.autograd.forward_ad. Types of options that never change: `values` are compared, and of `constants` each object
    is another."""

class Launch:
    """A launch of a plan whose addresses alone are missing."""

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
        kept: Sequence[object],
        results: int | tuple[int | None, ...],
    ) -> None:
        """
        owner    has the plan, `used`, which a launch sets from `clock`, and with a lock `alive`; it is not kept alive
        lock     held during a launch. While others hold it, nothing is launched here
        places   of each slot: where its tensor is in what is given, and behind that in `likes` and then `kept`
        likes    what is made is empty_like these
        results  which of what is given and made a launch gives, one or a tuple; None for None"""

class Launches:
    """Launches by how tensors, or views in place of tensors (memory/views.py), lie, which of them require a gradient, the
    current stream, and options: None, numbers, objects of the types of `read_tensors`, and lists, arrays and tensors of int32
    and int64 on the CPU by what they hold. Up to 128; then the oldest one goes."""

    def run(self, tensors: tuple[object, ...], options: tuple[object, ...]) -> Any:
        """Launches, and gives its results. None where no launch was prepared for such a call, or where that cannot be done
        now; then nothing is launched that the call itself would not launch again."""

    def add(
        self, tensors: tuple[object, ...], options: tuple[object, ...], make: Callable[[], object]
    ) -> None:
        """Adds what `make` gives, which is called only where such a call could be found again: a Launch, or somebody who is
        called with the tensors in place of one, or None."""

    def clear(self) -> None: ...
    def __len__(self) -> int: ...

def cuda_devices() -> int:
    """GPUs that a driver finds; 0 without a driver."""

class Device:
    """Where kernels run. Lives as long as anything that was made on it."""

    @staticmethod
    def host(*, checked: bool = False, seed: int = 0, shuffle: bool = False, threads: int = 0) -> Device:
        """The executor. `checked`: detectors and counters, for kernels compiled with `checked`. Results never depend
        on `threads` (0: one per core)."""
    @staticmethod
    def cuda(index: int = 0, *, library: str = "libcuda.so.1") -> Device: ...
    kind: Literal["host", "cuda"]
    index: int
    name: str
    target: str
    """What to compile for: its own code (sm_90a for an H100), of the host sm_90a."""
    form: Form
    """The form of code it loads: "host" or "ptx"."""
    properties: dict[str, int]
    """multiprocessors, shared_bytes, l2_bytes, memory_bytes, compute_capability (90), driver_version (12040)."""

    def synchronize(self, stream: int = 0) -> None: ...
    def allocate(self, nbytes: int, label: str = "memory") -> Memory: ...
    def report(self) -> dict[str, object]:
        """Of a checked host device since the last reset: `races`, `uninitialized`, `out_of_bounds`, `misaligned`,
        `sync`, `deadlocks`, `clean` (bool), `findings` (list of str), `text`, and the counters `bytes_read`,
        `bytes_written`, `bytes_partials`, `sector_efficiency`, `bank_conflicts`, `flops`, `seconds`. A failure of kind
        "input" on other devices."""
    def work(self, *, reset: bool = False) -> dict[str, int]:
        """What a host device was asked to do since the last reset: `launches`, `copies` to it, `allocations`, and hashes
        over `shapes` (kernels, grids, sizes) and all `arguments`. A failure of kind "input" on other devices."""
    def reset_report(self) -> None: ...

class Memory:
    """Memory of a device. Freed with the object: keep it as long as launches use it. Of a checked host device it is
    unwritten until it was written, and has exact bounds."""

    address: int
    nbytes: int

    def copy_in(self, data: Buffer, offset: int = 0) -> None: ...
    def copy_out(self, data: Buffer, offset: int = 0) -> None:
        """Into a writable buffer, after all that was launched (on the default stream)."""
    def fill(self, byte: int) -> None: ...
    def poison(self) -> None:
        """NaN everywhere; unwritten again on the host device."""

class Kernel:
    """A compiled function on a device. The code is loaded once and shared by all plans."""

    def __init__(self, artifact: Buffer, device: Device, name: str = "kernel", *, entry: str = "") -> None:
        """Of a file of artifacts the function `entry` ("": the only one). Refuses files that are damaged or of another
        version, functions that are not there, code for other targets, and host code of another CPU target or ABI version
        than this process's (build_info). `name`: the file's, for messages."""
    device: Device
    entry: str
    manifest: str
    checked: bool
    is_cache_operation: bool
    """An append, move or gather: for CacheKernels, not for plans."""
    slots: tuple[str, ...]
    """What `Plan.run` takes addresses of, in this order: tensors of the design's table that are the caller's ("q",
    "kv.k_pages", "kv.v_pages", "sink_logits", …, "o", "lse"). With head classes also "ordinal_heads", i32[kv_heads] on the
    device (see ordinal_heads): a layer's permutation. Tables (block_table, lengths, …) are the plan's own."""

    def batch(self, tensors: Mapping[str, Tensor], *, ends: Sequence[int] = ()) -> Batch:
        """Checks one problem's sizes. Tables (q_start, q_pos, <arg>.lengths, .pos0, .rows, .block_table, .start,
        classes) with their contents on the CPU; data (q, <arg>.k_pages, …, sinks) described: (dtype, shape, None).
        What may be left out has its default. `ends`: sizes of windows and sinks; empty: as compiled."""
    def ordinal_heads(self, classes: Sequence[int]) -> list[int]:
        """The KV head of each ordinal of the plan, for a layer whose heads have these classes."""
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
        """Plans, and copies plan and tables to the device (on `stream`). Options as in attn_rt/plan/Plan.h. `limits`: room
        for later batches: rows, groups, instances_per_row, shared_instances, shared_rows, tokens_per_row, instances, pages; what is not
        named is the batch's own. Without `Plan.fix` buffers grow where they must."""

class Batch:
    rows: int
    sequences: int
    user_row: bytes
    """i32[rows], of a batch made from a cache: the user's row of each row; else empty. `batch_row`: the way back."""
    batch_row: bytes
    nodes: list[list[int]]
    """By operand, of a batch made from a cache: the node where each instance begins."""
    tables: dict[str, tuple[str, tuple[int, ...], bytes]]
    """Of all operands of the kernel it was made with: (dtype, shape, bytes) by name."""
    floor: dict[str, float]
    """What the problem itself needs (unstable part): query_bytes, kv_bytes, table_bytes, result_bytes, whose sum is the
    `bytes_floor` of attn-run, and flops_useful."""

class Plan:
    """One batch's work, with all device memory that it needs: plan, tables, partials. Serves every layer."""

    kernel: Kernel
    slots: tuple[str, ...]
    """As Kernel.slots."""
    nbytes: tuple[int, ...]
    """Of each of `slots`: the least that `run` needs there."""
    rows: int

    def update(self, batch: Batch, *, stream: int = 0) -> bool:
        """The next step: True where the plan was only extended. Buffers grow where they must."""
    def grow(self, tokens: int, apart: int, stream: int = 0) -> bool:
        """The same of a batch of tensors with one packed operand: instances have `tokens` tokens more and are `apart`
        tokens apart, and rows stand so much further behind."""
    def run(
        self,
        addresses: Sequence[int],
        nbytes: Sequence[int],
        stream: int = 0,
        strides: Sequence[Sequence[int] | None] | None = None,
    ) -> None:
        """Launches: an address and a number of bytes for each of `slots`, on the caller's CUstream (an int; the host
        device has none). Strides are in bytes, of those that lie otherwise than densely. Neither allocates nor waits; on the host device it ends when the kernel has. Addresses are
        of the device's memory; the host device takes any memory of this process, for the time of the call."""
    def fix(self) -> None:
        """From now on launches depend on buffers' contents only (for CUDA graphs): an update that does not fit is
        refused."""
    def on_device(self, tokens: int = 0, stream: int = 0) -> None:
        """The batch was the largest: from now on `make` makes the plan of a step on the device. Fixed from then on."""
    tables: dict[str, int]
    """What `bind` takes addresses of, in this order, and the bytes of each: "plan", memory that plans are written to and
    read from, then tables that they are made of. Empty before `on_device`."""
    def bind(self, addresses: Sequence[int], nbytes: Sequence[int]) -> None:
        """What `make` and `run` use from now on; 0: the plan's own memory, or the batch's tables."""
    def make(self, stream: int = 0) -> None:
        """Launches the kernel that makes the plan. Neither allocates nor waits."""
    def fault(self, stream: int = 0) -> str:
        """What was wrong with the last tables; empty where nothing was. Waits."""
    def explain(self) -> str: ...
    def svg(self) -> str: ...
    def stats(self) -> dict[str, float | int]:
        """kv_bytes, q_bytes, partial_bytes, metadata_bytes, output_bytes, tasks, cuts, blocks, used_blocks, merge_rows,
        balance, flops, seconds (predicted), kernel (index), extended (updates since the last new plan)."""

class Movement:
    """What a change to a cache moves in memory: token copies within the cache, and new tokens written to it."""

    rows: int
    """New tokens, counted over the call."""
    copies: list[tuple[int, int, int, int, int, int]]
    """(head class, from page, from slot, to page, to slot, tokens)"""
    writes: list[tuple[int, int, int, int, int]]
    """(head class, row, page, slot, tokens)"""
    failed: bool
    """To be set while new tokens are being written: where that ends early, the cache takes them back."""
    taken_back: bool
    """Whether it did."""

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
        """Plain copies in CPU memory: the keys, or the values, of one class ([layers][pages][page_tokens][token_bytes]),
        and the new tokens [layers][rows][token_bytes]. Refuses, before anything moves, what does not lie within."""

class Cache:
    """A forest of sequences over pages (attn_rt/cache/Cache.h): bookkeeping only. Nodes are ints that never name another
    node. Errors change nothing; exhaustion is a failure of kind "memory"."""

    def __init__(
        self,
        *,
        page_tokens: int = 16,
        draft_page: int = 0,
        classes: Sequence[tuple[str, int, int, int, int]] = (),
    ) -> None:
        """A class: (name, pages, recent, sink, draft); recent > 0 is streaming."""
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
        """All of it or nothing: prune nodes, append to nodes, branch (node, children, tokens of each child). Gives the
        children."""
    def contains(self, node: int) -> bool: ...
    def check_groups(self, groups: RowGroups) -> None:
        """That the nodes of all groups live."""
    def roots(self) -> list[int]: ...
    def children(self, node: int) -> list[int]: ...
    def parent(self, node: int) -> int | None: ...
    def tokens(self, node: int) -> int:
        """Of the node itself."""
    def position(self, node: int) -> int:
        """Of its first token."""
    def is_leaf(self, node: int) -> bool: ...
    def is_evicted(self, node: int) -> bool: ...
    def draft_tokens(self, node: int) -> int: ...
    def node_count(self) -> int: ...
    def free_pages(self, head_class: int = 0) -> int: ...
    def places(self, node: int, head_class: int = 0) -> list[tuple[int, int, int, int]]:
        """(first token, tokens, page, slot), in order."""
    def draft_places(self, node: int, head_class: int = 0) -> list[tuple[int, int]]: ...
    is_open: bool
    """Whether new tokens of a Movement that lives are still to be written. Those of one that does not, or whose writing
    failed, are taken back whenever the cache is used."""

    def close(self, movement: Movement) -> None:
        """Says that they are written."""
    def roll_back(self) -> None:
        """Takes them back."""
    def check_invariants(self) -> None: ...

class Appends:
    """What a step appends: nodes, and a number of tokens for each, in a list, or for all. Of what is no int from 0 on `read`
    makes one: it takes "append" or "tokens", and the value."""

    def __init__(self, nodes: list, tokens: int | list, read: Callable[[str, object], int]) -> None: ...
    @property
    def tokens(self) -> int:
        """Of all."""

class RowGroups:
    """The requests of a step: nodes, (node, rows) and (node, rows, draft). What is none of these, exactly, `read` makes
    a (node, rows, draft) of: it takes the index and the request."""

    def __init__(self, requests: list, read: Callable[[int, object], tuple[int, int, bool]]) -> None: ...
    def __len__(self) -> int: ...
    @property
    def rows(self) -> int:
        """Without those of drafts."""
    @property
    def drafts(self) -> list[int]:
        """Nodes whose drafts are rows, too."""

class BatchBuilder:
    """From a cache to batches of one kernel (attn_rt/cache/CacheBatch.h)."""

    def __init__(
        self,
        kernel: Kernel,
        *,
        operands: Sequence[tuple[int, bool, bool]] = ((0, True, True),),
        max_pages: int = 0,
    ) -> None:
        """An operand: (head class, shows nodes, shows drafts), as in the kernel's manifest."""
    def build(
        self,
        cache: Cache,
        groups: RowGroups,
        *,
        classes: Sequence[int] = (),
        ends: Sequence[int] = (),
    ) -> Batch:
        """A group: (node, rows, draft): the node's last rows, then with draft all tokens of its draft. `classes`: of
        each KV head, where the kernel has head classes. `ends`: sizes of windows and sinks; empty: as compiled."""
    def update(self, cache: Cache, batch: Batch) -> bool:
        """After a step that only appended: writes what has changed into the batch that build gave last; False: build
        again."""

class CacheKernels:
    """Executes Movements on pages in device memory (attn_rt/session/CacheKernels.h)."""

    def __init__(self, append: Kernel, move: Kernel) -> None:
        """Both of one device and one kind of cache."""
    def reserve(
        self, pages: dict[str, int], *, head_class: int = 0, new_tokens: int, copied_tokens: int
    ) -> None:
        """Room for such movements, and where the pages are, as a Requantizer's: addresses of the device's memory; the host
        device takes any memory of this process, which has to outlive this object."""
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
        """`k` and `v`: new tokens [layers][rows][heads][dim], of so many layers from the first on; 0: all. Neither
        allocates nor waits; lists are copied in the first layers that a movement is executed in."""
    def append(
        self, list: int, list_nbytes: int, *, k: int, v: int, rows: int, layer: int, stream: int = 0
    ) -> None:
        """Writes new tokens of a layer, up to `rows`, whose number and slots are in StepTables' `new_tokens`."""
    def move(self, list: int, list_nbytes: int, stream: int = 0) -> None:
        """Copies tokens in all layers. The list is int32 on the device: their number in the first of 8 words, the slots
        that are read, with room for `copied_tokens` rounded up to a multiple of 8, and as many that are written."""

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
        """`operands`: as of BatchBuilder, and entries of a sequence in each one's block table."""
    @property
    def words(self) -> int:
        """Of int32."""
    @property
    def places(self) -> dict[str, tuple[int, int]]:
        """First word and words of each table, by name."""
    def take(self, cache: Cache, movement: Movement) -> None:
        """The movement's rows are the next new tokens of the step."""
    def check(self) -> None:
        """That no node of the last update has got or lost tokens since, or was pruned."""
    def append(self, cache: Cache, append: Appends) -> None:
        """Cache.apply of them, whose rows are."""
    def update(
        self,
        cache: Cache,
        groups: RowGroups,
        address: int,
        nbytes: int,
        stream: int = 0,
    ) -> None:
        """Makes the tables of a step and copies to `address` what the last update has not. Errors change nothing."""

class TableOperation:
    """Pages of many lists, by tensors in device memory: attn.manage_pages, attn.compact_tokens."""

    def __init__(self, kernel: Kernel, sizes: Sequence[int]) -> None: ...
    def launch(self, addresses: Sequence[int], stream: int = 0) -> None:
        """Of the tensors in the operation's order, at multiples of 16. Neither allocates nor waits."""

class Requantizer:
    """Copies slots of one cache to slots of another of fewer bits (attn.requantize)."""

    def __init__(self, requantize: Kernel) -> None: ...
    def reserve(self, slots: int, layers: int) -> None:
        """Room for lists of so many slots."""
    def execute(
        self,
        source: dict[str, int],
        target: dict[str, int],
        from_slots: Sequence[int],
        to_slots: Sequence[int],
        stream: int = 0,
    ) -> None:
        """Pages by the names of AttnDevicePages (attn-c/Cache.h), as "k_layer_bytes". A slot is skipped where both are negative. Neither
        allocates nor waits."""
    def launch(
        self, source: dict[str, int], target: dict[str, int], list: int, list_nbytes: int, stream: int = 0
    ) -> None:
        """The same of slots in a list on the device, as CacheKernels.move takes it."""
