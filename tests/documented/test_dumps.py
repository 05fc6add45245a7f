"""Hold create_model, its dumps and the offline checks to documents 001, and to what PaDiff got wrong with them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
import torch

import padiff
from padiff import (
    assign_weight,
    auto_diff,
    check_dataloader,
    check_grads,
    check_params,
    check_report,
    check_weights,
    create_model,
)
from padiff.compat import _folders
from padiff.engine import opened

from .nets import array, linear, mlp, native, network, pair, residual

FRAMEWORKS = ("torch", "paddle")


def _train(model: Any, values: Any, *, steps: int = 1, **kwargs: Any) -> None:
    """Run forward, backward and try_dump, as the documents show it."""
    for _ in range(steps):
        loss = model(native(model.framework, values)).mean()
        model.backward(loss)
        model.try_dump(**kwargs)


def _twins(build: Any = mlp, **kwargs: Any) -> tuple[Any, Any]:
    """Return a wrapped torch model and a wrapped Paddle model of the same weights."""
    models = create_model(build("torch"), "first"), create_model(build("paddle", **kwargs), "second")
    assert assign_weight(*models) is True
    return models


def test_a_dump_has_the_documented_folders_and_relative_paths() -> None:
    model = create_model(mlp("torch"), name="Simple")
    _train(model, array())
    folder = Path("padiff_dump/Simple/step_0/rank_0")
    assert sorted(path.name for path in folder.iterdir()) == [
        "grads",
        "params.json",
        "report.json",
        "tensors",
        "weights",
    ]
    report = json.loads((folder / "report.json").read_text())
    assert report["framework"] == "torch"
    (root,) = report["tree"]
    assert [child["route"] for child in root["children"]] == ["fc1", "act", "fc2"]
    assert all((folder / leaf["path"]).is_file() for leaf in root["fwd_outputs"])
    assert not any(Path(leaf["path"]).is_absolute() for leaf in root["fwd_outputs"])
    assert root["children"][0]["stack"][0].split(":")[0].endswith("nets.py")
    params = json.loads((folder / "params.json").read_text())
    fc1 = params["tree"]["children"][0]
    np.testing.assert_array_equal(np.load(folder / fc1["weights"]["weight"]), model.model.fc1.weight.detach().numpy())
    np.testing.assert_array_equal(np.load(folder / fc1["grads"]["weight"]), model.model.fc1.weight.grad.numpy())


def test_two_frameworks_are_compared_offline_and_a_dump_can_be_moved() -> None:
    first, second = _twins()
    for model in (first, second):
        _train(model, array(), steps=3)
    assert check_report(first.dump_path, second.dump_path)
    assert check_params(first.dump_path, second.dump_path)
    shutil.move(second.dump_path, "elsewhere")
    assert check_report(first.dump_path, "elsewhere")
    assert check_params(f"{first.dump_path}/step_1", "elsewhere/step_1")


def test_a_dump_is_a_run_too() -> None:
    """What `padiff show`, `compare` and `graph` take: with its modules' kinds, weights and gradients."""
    first, second = _twins()
    for model in (first, second):
        _train(model, array(), steps=2)
    run = opened(second.dump_path)
    assert (run.about.framework, list(run.steps), run.values) == ("paddle", [0, 1], "tensors")
    assert run.about.modules["fc1"].module.kind == "linear"
    trace = run.trace(1)
    assert trace.array(trace.weights["fc1.weight"]).shape == (8, 16)
    assert trace.parameter_gradients.keys() == trace.weights.keys()
    assert padiff.compare(first.dump_path, second.dump_path).aligned
    third = create_model(residual("paddle", {3: 1.5}), "third")
    fourth = create_model(residual("torch"), "fourth")
    assert assign_weight(fourth, third) is True
    for model in (third, fourth):
        _train(model, array())
    assert "blocks.3" in [
        finding.candidate.path for finding in padiff.compare("padiff_dump/fourth", third.dump_path).sources
    ]
    assert "calls matched" in padiff.graph(first.dump_path, second.dump_path)


def test_a_wrong_layer_is_named_with_both_routes_and_stacks(capsys: pytest.CaptureFixture[str]) -> None:
    first = create_model(residual("torch"), "first")
    second = create_model(residual("paddle", {3: 1.5}), "second")
    assert assign_weight(first, second) is True
    for model in (first, second):
        _train(model, array())
    assert check_report(first.dump_path, second.dump_path) is False
    printed = capsys.readouterr().out
    assert "Diff found in `Forward Stage`" in printed
    assert "first.blocks.3\n" in printed
    assert "second.blocks.3\n" in printed
    assert "nets.py" in printed


def test_a_fault_of_the_backward_pass_alone_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    def forward(self: Any, x: Any) -> Any:
        hidden = self.fc1(x)
        return self.fc2(hidden.detach() if self.detached else hidden) + hidden

    def build(framework: str, *, detached: bool = False) -> Any:
        layers = {"fc1": linear(framework, 8, 8), "fc2": linear(framework, 8, 8)}
        return network(framework, forward, detached=detached, **layers)

    first, second = _twins(build, detached=True)
    for model in (first, second):
        _train(model, array())
    assert check_report(first.dump_path, second.dump_path, diff_phase="forward") is True
    assert check_report(first.dump_path, second.dump_path) is False
    assert "Diff found in `Backward Stage`" in capsys.readouterr().out
    assert check_weights(first.dump_path, second.dump_path) is True
    assert check_grads(first.dump_path, second.dump_path) is False
    log = Path("padiff_log/grad_diff.log").read_text()
    assert "fc1.weight vs fc1.weight" in log
    assert "fc2" not in log


def test_every_step_is_compared_not_the_first_alone() -> None:
    first, second = _twins()
    _train(first, array(), steps=3)
    for step in range(3):
        _train(second, array(seed=int(step == 2)))
    assert check_report(f"{first.dump_path}/step_1", f"{second.dump_path}/step_1") is True
    assert check_report(first.dump_path, second.dump_path) is False
    _train(first, array())
    with pytest.raises(padiff.InputError, match="step_3"):
        check_report(first.dump_path, second.dump_path)


def test_every_rank_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    models = _twins()
    for rank, seeds in (("0", (0, 0)), ("1", (0, 1))):
        monkeypatch.setenv("RANK", rank)
        for model, seed in zip(models, seeds, strict=True):
            model.dump_path = f"{model.name}_ranks"
            model.step = 0
            _train(model, array(seed=seed))
    assert sorted(path.name for path in Path("first_ranks/step_0").iterdir()) == ["rank_0", "rank_1"]
    assert check_report("first_ranks/step_0/rank_0", "second_ranks/step_0/rank_0") is True
    assert check_report("first_ranks", "second_ranks") is False


@pytest.mark.parametrize(
    "dump",
    [
        lambda model, at: model.try_dump(2, f"{at}/{model.step}"),
        lambda model, at: model.try_dump(per_step=2, dir_path=f"{at}/{model.step}"),
        lambda model, at: model.try_dump(f"{at}/{model.step}", per_step=2),
    ],
    ids=["by_position", "by_name", "mixed"],
)
def test_try_dump_dumps_every_nth_call(dump: Any) -> None:
    model = create_model(mlp("paddle"))
    for _ in range(5):
        model.backward(model(paddle.to_tensor(array())).mean())
        dump(model, "there")
        assert model.report.items == []
    assert sorted(path.name for path in Path("there").iterdir()) == ["1", "3"]


def test_dump_freq_records_and_dumps_every_nth_step() -> None:
    model = create_model(mlp("torch"), dump_freq=2)
    counts = []
    for _ in range(4):
        model.backward(model(torch.from_numpy(array())).mean())
        counts.append(len(model.report.items))
        model.try_dump()
    assert counts == [8, 0, 8, 0]  # four modules, forward and backward
    assert sorted(path.name for path in Path(model.dump_path).iterdir()) == ["step_0", "step_2"]


def test_single_dumps_show_what_the_optimizer_did() -> None:
    first, second = _twins()
    optimizers = (
        torch.optim.SGD(first.model.parameters(), lr=0.1),
        paddle.optimizer.SGD(0.2, parameters=second.model.parameters()),
    )
    for model, optimizer in zip((first, second), optimizers, strict=True):
        model.backward(model(native(model.framework, array())).mean())
        model.dump_report(model.name)
        model.dump_grads(model.name)
        optimizer.step()
        model.dump_weights(model.name)
        model.clear_report()
    assert check_report("first", "second") is True
    assert check_grads("first", "second") is True
    assert check_weights("first", "second") is False
    with pytest.raises(padiff.InputError, match=r"no params\.json"):
        check_params("first", "second")


def test_gradients_accumulate_in_one_report() -> None:
    model = create_model(mlp("torch"))
    for seed in (0, 1):
        model.backward(model(torch.from_numpy(array(seed=seed))).mean())
    model.dump_report("here")
    assert len(json.loads(Path("here/report.json").read_text())["tree"]) == 2
    model.clear_report()
    assert model.report.items == []


def test_black_and_white_lists_decide_what_is_recorded() -> None:
    def routes(model: Any) -> list[str]:
        model(torch.from_numpy(array()))
        found = [item.call.path for item in model.report.items if item.type == "forward"]
        model.clear_report()
        return found

    model = create_model(residual("torch", depth=2))
    block = ["blocks.0", "blocks.0.norm", "blocks.0.fc", "blocks.0.act"]
    other = [path.replace("0", "1") for path in block]
    assert routes(model) == ["", *block, *other, "head"]
    model.update_black_list([model.model.blocks[0]], "sublayers")
    assert routes(model) == ["", block[0], *other, "head"]
    model.update_black_list(model.model.blocks[1], "all")
    assert routes(model) == ["", block[0], "head"]
    model.update_black_list_with_class(torch.nn.Linear)
    assert routes(model) == ["", block[0]]
    model.update_white_list([model.model.blocks[0].fc], "self")
    assert routes(model) == ["", "blocks.0.fc"]  # white wins
    model.update_white_list_with_class(torch.nn.LayerNorm)
    assert routes(model) == ["", "blocks.0.norm", "blocks.0.fc", "blocks.1.norm"]
    with pytest.raises(padiff.MappingError, match="not in Residual"):
        model.update_black_list([torch.nn.Linear(1, 1)])
    with pytest.raises(padiff.InputError, match="sublayers"):
        model.update_black_list([], "everything")


def test_lists_keep_parameters_out_of_a_dump() -> None:
    model = create_model(mlp("torch"))
    model.update_black_list([model.model.fc1])
    model.dump_params("here")
    tree = json.loads(Path("here/params.json").read_text())["tree"]
    available = {child["route"]: (child["available"], sorted(child["weights"])) for child in tree["children"]}
    assert available["fc1"] == (False, [])
    assert available["fc2"] == (True, ["bias", "weight"])


def test_a_layer_map_ties_modules_in_the_order_of_its_list() -> None:
    def forward(self: Any, x: Any) -> Any:
        return self.b(self.a(x))

    torch_layers = {"a": torch.nn.Linear(8, 8), "b": torch.nn.Linear(8, 8)}
    paddle_layers = {"b": paddle.nn.Linear(8, 8), "a": paddle.nn.Linear(8, 8)}
    first = create_model(network("torch", forward, **torch_layers), "first")
    second = create_model(network("paddle", forward, **paddle_layers), "second")
    first.set_layer_map([first.model.a, first.model.b])
    second.set_layer_map([second.model.a, second.model.b])
    assert assign_weight(first, second) is True
    for model in (first, second):
        _train(model, array())
    assert check_report(first.dump_path, second.dump_path) is True
    assert auto_diff(first, second, pair(FRAMEWORKS)) is True
    second.set_layer_map([second.model.a])
    with pytest.raises(padiff.InputError, match="maps 2 modules and second maps 1"):
        auto_diff(first, second, pair(FRAMEWORKS))


def test_auto_diff_takes_wrapped_models_their_lists_and_dumps_them() -> None:
    first, second = _twins(residual, factors={1: 1.5})
    inputs = pair(FRAMEWORKS)
    assert auto_diff(first, second, inputs, atol=1e-4) is False
    assert check_report(f"{first.dump_path}/auto_diff", f"{second.dump_path}/auto_diff") is False
    for model in (first, second):
        model.update_black_list([model.model.blocks[1]], "self")
    assert auto_diff(first, second, inputs, single_step=True, atol=1e-4) is True
    assert len(first.report.items) == 0


def test_what_passed_under_padiff_and_is_wrong_does_not_pass() -> None:
    values = array(4, 8)
    for wrong in (
        lambda y: y.flip([-1]) if isinstance(y, torch.Tensor) else paddle.flip(y, [-1]),  # another mean of the error
        lambda y: y * float("nan"),
    ):
        model, other = create_model(mlp("torch"), "right"), create_model(mlp("torch", after=wrong), "wrong")
        other.model.load_state_dict(model.model.state_dict())
        for one in (model, other):
            one(torch.from_numpy(values))
            one.dump_report(one.name)
        assert check_report("right", "wrong") is False


def test_two_models_of_one_class_do_not_share_a_folder() -> None:
    first, second = create_model(mlp("torch")), create_model(mlp("torch"))
    assert first.dump_path != second.dump_path
    for model in (first, second):
        _train(model, array())
    assert check_report(first.dump_path, second.dump_path) is False


def test_tolerances_hold_for_one_call() -> None:
    first, second = _twins()
    second.model.fc2.bias.set_value(second.model.fc2.bias + 0.1)
    for model in (first, second):
        _train(model, array())
    paths = first.dump_path, second.dump_path
    assert check_params(*paths) is False
    assert check_params(*paths, {"atol": 1.0}) is True
    assert check_params(*paths) is False
    with pytest.raises(padiff.InputError, match="'tol'"):
        check_params(*paths, {"tol": 1.0})


def test_nothing_of_a_users_is_ever_removed() -> None:
    Path("mine/tensors").mkdir(parents=True)
    Path("mine/tensors/thesis.txt").write_text("years")
    model = create_model(mlp("torch"))
    model(torch.from_numpy(array()))
    with pytest.raises(padiff.InputError, match="padiff did not make it"):
        model.dump_report("mine")
    assert Path("mine/tensors/thesis.txt").read_text() == "years"
    model.dump_report("fresh")
    model.dump_report("fresh")  # its own dump it may write again
    assert check_report("fresh", "fresh") is True


def test_an_earlier_runs_dumps_are_put_aside(capsys: pytest.CaptureFixture[str]) -> None:
    model = create_model(mlp("torch"), "again")
    Path(model.dump_path, "step_7").mkdir(parents=True)
    Path(model.dump_path, "step_7", "note.txt").write_text("old")
    _train(model, array())
    assert sorted(path.name for path in Path(model.dump_path).iterdir()) == ["step_0"]
    assert Path(f"{model.dump_path}.previous-1", "step_7", "note.txt").read_text() == "old"
    assert "previous-1" in capsys.readouterr().out


def test_a_dump_is_safe_to_open_and_names_what_is_damaged() -> None:
    model = create_model(mlp("torch"))
    model(torch.from_numpy(array()))
    model.dump_report("good")
    for name, spoil, told in (
        ("outside", lambda text: text.replace("tensors/tensor_0.npy", "../secret.npy"), "outside of it"),
        ("gone", lambda text: text.replace("tensors/tensor_0.npy", "tensors/none.npy"), "missing or damaged"),
        ("cut", lambda text: text[: len(text) // 2], "is damaged"),
    ):
        shutil.copytree("good", name)
        report = Path(name, "report.json")
        report.write_text(spoil(report.read_text()))
        with pytest.raises(padiff.InputError, match=told):
            check_report("good", name)
    with pytest.raises(padiff.InputError, match="is no directory"):
        check_report("good", "nowhere")


def test_bfloat16_comes_back_as_it_was() -> None:
    model = create_model(mlp("torch").to(torch.bfloat16))
    model(torch.from_numpy(array()).bfloat16())
    model.dump_report("here")
    model.dump_params("here")
    assert check_report("here", "here") is True
    assert check_weights("here", "here") is True


def test_wrapping_changes_nothing_and_the_model_answers_what_is_asked_of_it() -> None:
    plain = mlp("torch")
    expected = plain(torch.from_numpy(array()))
    model = create_model(plain)
    torch.testing.assert_close(model(torch.from_numpy(array())), expected, rtol=0, atol=0)
    assert model.eval() is plain
    assert model.training is False
    assert list(model.state_dict()) == list(plain.state_dict())
    assert create_model(model) is model
    assert [path for path, _ in model.named_submodels()] == ["", "fc1", "act", "fc2"]
    assert not plain._forward_hooks
    assert not plain.fc1._forward_hooks


def test_data_loaders_are_compared_batch_by_batch(capsys: pytest.CaptureFixture[str]) -> None:
    values = [array(seed=seed) for seed in range(4)]
    ours = [torch.from_numpy(value) for value in values]
    theirs = [paddle.to_tensor(value) for value in values]
    assert check_dataloader(ours, theirs) is True
    assert check_dataloader([{"x": a, "y": [1]} for a in ours], [{"x": b, "y": [1]} for b in theirs]) is True
    assert check_dataloader(ours, [*theirs[:2], theirs[2] + 1, theirs[3]]) is False
    assert "batch 2" in capsys.readouterr().out
    assert check_dataloader(ours, theirs[:3]) is False
    assert "ends after 3 batches" in capsys.readouterr().out
    assert check_dataloader(ours, [b + 1e-3 for b in theirs], atol=1e-2) is True


def test_a_wrong_call_says_what_to_do() -> None:
    model = create_model(mlp("torch"))
    with pytest.raises(TypeError, match="every"):
        model.try_dump(every=2)
    with pytest.raises(padiff.InputError, match="backward"):
        model.backward(1.0)
    with pytest.raises(padiff.InputError, match="dump_freq"):
        create_model(mlp("torch"), dump_freq=0)
    with pytest.raises(padiff.UnknownModel):
        create_model(object())


def test_the_root_of_dumps_can_be_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_folders._Root, "path", None)  # put back behind the test
    assert padiff.get_dump_root_path() == str(tmp_path / "padiff_dump")
    padiff.set_dump_root_path(tmp_path / "elsewhere")
    model = create_model(mlp("torch"), "Simple")
    assert model.dump_path == str(tmp_path / "elsewhere" / "Simple")
    _train(model, array())
    assert (tmp_path / "elsewhere" / "Simple" / "step_0" / "rank_0" / "report.json").is_file()
