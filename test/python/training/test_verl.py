# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""veRL's engine over packed groups: signatures against the installed verl, behaviour with a stand-in of the engine."""

import ast
import importlib.util
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("transformers", reason="Transformers is not installed")

import attn  # noqa: E402
from attn.training.verl import SIGNATURES, packed_engine, packed_micro_batch  # noqa: E402
from tiny_decoders import VOCABULARY, decoder, gradients  # noqa: E402

GROUP = 3
LENGTHS = [(9, 5), (9, 2), (9, 7), (4, 6), (4, 1), (4, 3)]  # prompt and response of each row


class Batch(dict):
    """The part of TensorDict that the adapter uses, where tensordict is not installed."""

    def set_non_tensor(self, name, value):
        self[name] = value


class Engine:
    """The part of FSDPEngineWithLMHead of verl 0.9.1 that the adapter uses: micro-batches of whole groups, and a
    forward step that prepares inputs, calls the module and prepares outputs. Every row has its own prompt."""

    use_ulysses_sp = False

    def __init__(self, module):
        self.module = module

    def forward_backward_batch(self, data, loss_function, forward_only=False):
        size = data["force_group_size"]
        found = []
        with torch.set_grad_enabled(not forward_only):
            for start in range(0, len(LENGTHS), size):
                loss, output = self.forward_step(rows_of(data, start, size), loss_function, forward_only)
                if not forward_only:
                    loss.backward()
                found.append(output)
        return found

    def forward_step(self, micro_batch, loss_function, forward_only):
        model_inputs, output_args = self.prepare_model_inputs(micro_batch=micro_batch)
        raw_output = self.module(**model_inputs, use_cache=False)
        output = self.prepare_model_outputs(
            output=raw_output,
            output_args=output_args,
            micro_batch=micro_batch,
            logits_processor_func=loss_function,
        )
        loss = torch.tensor(1.0) if loss_function is None else loss_function(output, micro_batch)
        return loss, {name: values.detach() for name, values in output.items()}

    def prepare_model_inputs(self, micro_batch):
        ids = torch.nested.to_padded_tensor(micro_batch["input_ids"], 0)
        return {"input_ids": ids}, {}

    def prepare_model_outputs(self, output, output_args, micro_batch, logits_processor_func):
        ids = micro_batch["input_ids"]
        found = {"log_probs": [], "entropy": []}
        for row, logits in zip(ids.unbind(), output.logits, strict=True):
            p = (
                logits[: len(row)] / float(torch.as_tensor(micro_batch["temperature"]).flatten()[0])
            ).log_softmax(-1)
            found["log_probs"].append(p.gather(1, row.roll(-1)[:, None])[:, 0])
            found["entropy"].append(-(p.exp() * p).sum(1))
        return {
            name: torch.nested.nested_tensor_from_jagged(torch.cat(values), ids.offsets())
            for name, values in found.items()
        }


class Copies(Engine):
    def forward_backward_batch(self, data, loss_function, forward_only=False):
        data.set_non_tensor("force_group_size", GROUP)
        return super().forward_backward_batch(data, loss_function, forward_only)


def jagged(rows):
    return torch.nested.nested_tensor(list(rows), layout=torch.jagged)


def batch(nested_prompts=True, **others):
    random = torch.Generator().manual_seed(0)
    prompts = [torch.randint(VOCABULARY, (n,), generator=random) for n in (9, 4)]
    of_rows = [prompts[row // GROUP] for row in range(len(LENGTHS))]
    responses = [torch.randint(VOCABULARY, (n,), generator=random) for _, n in LENGTHS]
    found = Batch(temperature=0.9, calculate_entropy=True)
    found["input_ids"] = jagged(torch.cat(pair) for pair in zip(of_rows, responses, strict=True))
    found["responses"] = jagged(responses)
    if nested_prompts:
        found["prompts"] = jagged(of_rows)
    else:  # padded on the left to 10 tokens, the responses on the right to 7
        found["prompts"] = torch.zeros(len(LENGTHS), 10)
        at = torch.arange(17)
        found["attention_mask"] = torch.stack([(at >= 10 - p) & (at < 10 + r) for p, r in LENGTHS]).long()
    found |= others
    return found


def rows_of(data, start, size):
    found = Batch()
    for name, value in data.items():
        if isinstance(value, torch.Tensor) and value.is_nested:
            value = jagged(list(value.unbind())[start : start + size])
        elif isinstance(value, torch.Tensor):
            value = value[start : start + size]
        found[name] = value
    return found


def responses_of(values, data):
    """Return responses as veRL slices them: a response's log-probabilities start one row before its tokens."""
    lengths = [len(row) for row in data["responses"].unbind()]
    return torch.cat([row[-n - 1 : -1] for row, n in zip(values.unbind(), lengths, strict=True)])


def ppo(output, data):
    found = responses_of(output["log_probs"], data)
    weights = torch.linspace(-1, 1, len(found))
    entropy = responses_of(output["entropy"], data)
    return -((found - found.detach()).exp() * weights).sum() - 0.01 * entropy.sum()


@pytest.mark.parametrize("nested", [True, False], ids=["jagged", "padded"])
@pytest.mark.parametrize("checkpointing", [False, True], ids=["kept", "checkpointed"])
def test_update_is_that_of_copies(nested, checkpointing):
    model = decoder()
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    found = {}
    for name, kind in (("copies", Copies), ("packed", packed_engine(Engine, GROUP, reference=True))):
        model.zero_grad()
        outputs = kind(model).forward_backward_batch(batch(nested), ppo)
        found[name] = outputs, {n: weight.grad.clone() for n, weight in model.named_parameters()}
    for start, one, other in zip((0, GROUP), found["packed"][0], found["copies"][0], strict=True):
        data = rows_of(batch(nested), start, GROUP)
        assert (one["log_probs"].offsets() == data["input_ids"].offsets()).all()
        for name in ("log_probs", "entropy"):
            pair = responses_of(one[name], data), responses_of(other[name], data)
            torch.testing.assert_close(*pair, rtol=0, atol=1e-5)
    for name, wanted in found["copies"][1].items():
        assert (found["packed"][1][name] - wanted).abs().max() <= 1e-5 * wanted.abs().max(), name


def test_old_and_reference_log_probabilities_are_packed_too():
    engine = packed_engine(Engine, GROUP, reference=True)(decoder().eval())
    rows = []
    engine.module.register_forward_pre_hook(
        lambda *given: rows.append(given[2]["input_ids"].shape), with_kwargs=True
    )
    outputs = engine.forward_backward_batch(batch(calculate_entropy=False), None, forward_only=True)
    assert [set(output) for output in outputs] == [{"log_probs"}] * 2
    assert rows == [(1, 9 + 5 + 2 + 7), (1, 4 + 6 + 1 + 3)]


def test_a_tensordict():
    tensordict = pytest.importorskip("tensordict", reason="tensordict is not installed")
    given = batch()
    data = tensordict.TensorDict(
        {name: value for name, value in given.items() if isinstance(value, torch.Tensor)},
        batch_size=[len(LENGTHS)],
    )
    for name, value in given.items():
        if not isinstance(value, torch.Tensor):
            data.set_non_tensor(name, value)

    class Whole(Engine):
        def forward_backward_batch(self, data, loss_function, forward_only=False):
            assert data["force_group_size"] == GROUP
            return self.forward_step(data, loss_function, forward_only)

    model = decoder()
    loss, output = packed_engine(Whole, GROUP, reference=True)(model).forward_backward_batch(data, ppo)
    assert set(output) == {"log_probs", "entropy"} and gradients(model, loss)


def test_signatures_are_those_of_verl():
    """Signatures are read from the source, since an import of the engine takes ray and more."""
    spec = importlib.util.find_spec("verl")
    if spec is None:
        pytest.skip("verl is not installed")
    file = Path(spec.origin).parent / "workers" / "engine" / "fsdp" / "transformer_impl.py"
    classes = {node.name: node for node in ast.parse(file.read_text()).body if isinstance(node, ast.ClassDef)}
    engine = classes["FSDPEngineWithLMHead"]
    assert [base.id for base in engine.bases] == ["FSDPEngine"]
    found = {}
    for of in (classes["FSDPEngine"], engine):
        methods = [node for node in of.body if isinstance(node, ast.FunctionDef) and node.name in SIGNATURES]
        found |= {method.name: [argument.arg for argument in method.args.args] for method in methods}
    assert found == SIGNATURES
    step = next(ast.unparse(node) for node in engine.body if getattr(node, "name", "") == "forward_step")
    assert "self.prepare_model_inputs(micro_batch=micro_batch)" in step
    assert "self.module(**model_inputs, use_cache=False)" in step
    named = {node.value for node in ast.walk(engine) if isinstance(node, ast.Constant)}
    assert {
        "input_ids",
        "temperature",
        "calculate_entropy",
        "use_fused_kernels",
        "log_probs",
        "entropy",
    } <= named
    assert '"force_group_size"' in (file.parents[1] / "utils.py").read_text()
    registry = (file.parents[1] / "base.py").read_text()
    assert "VERL_ENGINE_VENDOR" in registry
    register = next(node for node in ast.walk(ast.parse(registry)) if getattr(node, "name", "") == "register")
    assert [argument.arg for argument in register.args.args] == [
        "cls",
        "model_type",
        "backend",
        "device",
        "vendor",
    ]


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ({"use_fused_kernels": True}, "use_fused_kernels: expected False over packed groups"),
        ({"distillation_use_topk": True}, "distillation_use_topk: expected False"),
        ({"calculate_sum_pi_squared": True}, "calculate_sum_pi_squared: expected False"),
        ({"multi_modal_inputs": [{"pixel_values": 1}]}, "multi_modal_inputs: expected none"),
        ({"temperature": torch.tensor([1.0] * 5 + [0.5])}, "temperature: expected one for a micro-batch"),
    ],
)
def test_batches_that_are_refused(others, message):
    engine = packed_engine(Engine, 6 if "temperature" in others else GROUP, reference=True)
    data = batch(**others)
    if "temperature" in others:
        data["input_ids"] = jagged([next(iter(data["input_ids"].unbind()))] * 6)
        data["prompts"] = jagged([next(iter(data["prompts"].unbind()))] * 6)
    with pytest.raises(attn.TensorError, match=message):
        engine(decoder()).forward_backward_batch(data, ppo)


@pytest.mark.parametrize("name", ["use_ulysses_sp", "pad_to_length"])
def test_engines_that_are_refused(name):
    engine = packed_engine(Engine, GROUP)(decoder())
    setattr(engine, name, True)
    with pytest.raises(attn.TensorError, match="ulysses_sequence_parallel_size|pad_to_length"):
        engine.forward_backward_batch(batch(), ppo)


def test_cut_groups_are_refused():
    rows = list(batch()["input_ids"].unbind())
    prompts = list(batch()["prompts"].unbind())
    order = [0, 3, 1, 2, 4, 5]
    shuffled = Batch(input_ids=jagged(rows[i] for i in order), prompts=jagged(prompts[i] for i in order))
    with pytest.raises(attn.PlanError, match="a shuffle cut the group"):
        packed_micro_batch(shuffled, GROUP)
    with pytest.raises(attn.TensorError, match="rows of whole groups of 4, got 6"):
        packed_micro_batch(batch(), 4)


def test_other_engines_are_refused():
    class Other(Engine):
        def prepare_model_inputs(self, batch):
            return super().prepare_model_inputs(batch)

    with pytest.raises(
        attn.SpecError, match="Other.prepare_model_inputs: expected arguments self, micro_batch"
    ):
        packed_engine(Other, GROUP)
    with pytest.raises(attn.SpecError, match="object.forward_backward_batch: expected .* got None"):
        packed_engine(object, GROUP)
    with pytest.raises(attn.SpecError, match="group_size: expected a number of responses"):
        packed_engine(Engine, 0)
