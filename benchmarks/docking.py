"""vLLM's original docking files, unmodified, on the emitted packages: a step of each layer kind, simulated.

    python benchmarks/docking.py --folder ~/.cache/monoc-peer                     # both models, every kind
    python benchmarks/docking.py --folder ... --model dsv41 --kind "index source" --rows 2

The wheel is downloaded once into the folder (some hundred megabytes; only the models' folders are kept). Nothing of it
is part of monoc. The emitted package stands where the hand-written launches did. For each kind the original docking and
the emitted one make the same step, each with a runner of its own; a line says whether their outputs are the same bits
on all ranks and finite, and how long the simulations took (compiling falls into the first). With `--decisions N`, both
instead decide N random deployments, layers and steps, a recorder in the runner's place. Exit code 1 if they differ.
"""

import importlib.util
import json
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Annotated, Any

import torch
import typer
from docked.decisions import Disagreement, decide
from docked.layers import KINDS, Kind, Step, configuration, context, make_layer, run
from docked.stand_ins import World, install, module
from peer.wheel import fetch
from rich.console import Console

from monoc.compiler import compile_spec
from monoc.emit.files import write_package
from monoc.reference.weights import sizes
from monoc.sim import Simulator
from monoc.sim.host import SimulatedHost, simulate
from monoc.spec.program import Layout, Program, Role
from monoc.verify.docked import block_scales
from monoc.verify.inputs.step import Contexts, make_step
from monoc.verify.inputs.weights import Weights

# spec -> vLLM's folder of the model, tensor parallel ranks
MODELS = {"dsv41": ("deepseek_v41", 4), "dsv4_pro": ("deepseek_v4", 8)}
SPECS = Path(__file__).parents[1] / "layer_specs"


@dataclass(frozen=True)
class Model:
    program: Program
    package: Path
    original: Path
    vllm: str
    tp: int

    @property
    def mono(self) -> str:
        """The module the launches are imported from."""
        return f"vllm.models.{self.vllm}.amd.mono"

    @classmethod
    def of(cls, name: str, folder: Path) -> "Model":
        vllm, tp = MODELS[name]
        package = compile_spec(str(SPECS / f"{name}.yaml"))
        if package.proof.failures:
            raise typer.BadParameter(f"{name}: {package.proof.failures[0]}")
        write_package(folder / "packages" / name, package.files)
        original = fetch(folder) / "vllm" / "models" / vllm / "amd" / "mono_decode.py"
        return cls(package.program, folder / "packages" / name, original, vllm, tp)

    def install(self) -> None:
        """The emitted package as the module `mono`, with the few names the original docking takes from below it."""
        module(self.mono.rpartition(".")[0])
        self._load(self.mono, self.package / "__init__.py")
        runner = sys.modules.get(f"{self.mono}.runner") or importlib.import_module(f"{self.mono}.runner")
        plan = sys.modules[f"{self.mono}.plan"]
        module(f"{self.mono}.attention.plan", Dims=runner.Dims)
        module(f"{self.mono}.common.arch", target_arch=lambda: plan.TARGET)
        constants = dict(self.program.docking.constants) if self.program.docking is not None else {}
        module(
            f"{self.mono}.dims",
            **{n: getattr(plan, n) for n in ("EXPERTS", "TOPK", "WINDOW") if hasattr(plan, n)},
            MAX_TOKENS=runner.MAX_TOKENS,
            Dims=runner.Dims,
            ROUTED_SCALE=constants.get("route_scale"),
            SWIGLU_LIMIT=constants.get("limit"),
        )

    def originals(self) -> list[Any]:
        """The original docking once a rank: it keeps its runner in a global of the process."""
        return [self._load(f"vllm.models.{self.vllm}.amd.mono_decode_{r}", self.original) for r in range(self.tp)]

    @staticmethod
    def _load(name: str, file: Path) -> ModuleType:
        where = [str(file.parent)] if file.name == "__init__.py" else None
        spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=where)
        assert spec is not None
        assert spec.loader is not None
        made = importlib.util.module_from_spec(spec)
        sys.modules[name] = made
        spec.loader.exec_module(made)
        return made


def _steps(model: Model, kind: Kind, rows: int) -> tuple[dict[str, Any], list[Step]]:
    """The build's sizes, and each rank's weights and inputs. Every token goes to the same few experts."""
    program, tp = model.program, model.tp
    build = next(program.space.builds(tokens=rows, tp=tp, **kind.fixed))
    env = dict(program.environment(build))
    entry = next(e for e in program.entries if e.name == kind.entry)
    weights = Weights(program, env, tp, 0)
    inputs = make_step(program, entry, env, tp, 0, Contexts(narrow=0))
    chosen = [7 * k for k in range(int(env["topk"]))]
    if kind.hashed:
        chosen = sorted(set(inputs.tensors[0]["route_ids"].flatten().tolist()))
    weights.materialise(chosen)
    for here in weights.tensors:
        here["bias"][chosen] += 1000.0
        block_scales(program, here)
        for decl in program.tensors:
            if decl.layout is Layout.ROWS_PAD256:
                here[decl.name] = here[decl.name][:, : sizes(decl.shape, env)[1]]
    steps = []
    for rank in range(tp):
        # caches and tables are written in place: a copy a rank
        given = {n: _own(program, n, t, inputs.selected) for n, t in inputs.tensors[rank].items()}
        steps.append(Step(weights.tensors[rank], given, inputs.selected))
    return env, steps


def _own(program: Program, name: str, tensor: torch.Tensor, selected: Any) -> torch.Tensor:
    if program.tensor[name].role is not Role.CACHE and name not in selected:
        return tensor
    reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    whole = tensor.as_strided((reach,), (1,)).clone()
    return whole.as_strided(tensor.shape, tensor.stride())


def _run(model: Model, kind: Kind, rows: int, host: SimulatedHost, world: World) -> dict[str, Any]:
    env, steps = _steps(model, kind, rows)
    for rank, step in enumerate(steps):
        for name, tensor in {**step.weights, **step.given}.items():
            host.register(tensor, rank if name in step.selected or "cache" in name else None, name)
    layers = [make_layer(model.program, kind, env, step) for step in steps]
    emitted = sys.modules[f"{model.mono}.mono_decode"]
    dockings = {"original": model.originals(), "emitted": [emitted] * model.tp}
    outputs: dict[str, list[tuple[torch.Tensor, ...]]] = {}
    seconds: dict[str, float] = {}
    for name, modules in dockings.items():

        def body(rank: int, modules: list[Any] = modules) -> tuple[torch.Tensor, ...]:
            layer, given = layers[rank], steps[rank].given
            for table in steps[rank].selected:
                given[table].fill_(-1)  # what is not selected again is not there
            mono = modules[rank].MonoDecodeLayer.create(layer, configuration())
            if mono is None:
                raise RuntimeError(f"not taken: {world.log[-1]}")
            world.contexts[rank] = context(kind, layer, given, rows)
            out = run(kind, mono, layer, given)
            if out is None:
                raise RuntimeError(f"not taken: {world.log[-1]}")
            return tuple(t.cpu() for t in out)

        start = time.monotonic()
        outputs[name] = host.run(body)
        seconds[name] = round(time.monotonic() - start, 1)
    return {**_judged(outputs), "seconds": seconds}


def _judged(outputs: dict[str, list[tuple[torch.Tensor, ...]]]) -> dict[str, Any]:
    first = outputs["original"][0]
    same = all(
        torch.equal(a.view(torch.uint8), b.view(torch.uint8))
        for ranks in outputs.values()
        for out in ranks
        for a, b in zip(first, out[: len(first)], strict=True)
    )
    finite = all(bool(torch.isfinite(t.float()).all()) for t in first)
    return {"same": same, "finite": finite, "shapes": [list(t.shape) for t in first]}


def _decisions(about: Model, cases: int, seed: int) -> tuple[dict[str, int], list[Disagreement]]:
    """Both dockings on random deployments, layers and steps; the GPU is as the case says."""
    with simulate(Simulator("gfx950", ranks=1)) as host:
        world = World(host, about.tp)
        install(world)
        about.install()
        emitted, runner = (sys.modules[f"{about.mono}.{part}"] for part in ("mono_decode", "runner"))
        real = host.properties
        torch.cuda.get_device_properties = lambda device=None: replace(real, multi_processor_count=world.compute_units)
        kind = getattr(runner, about.program.runner.class_name)
        return decide(about.program, about.originals()[0], emitted, world, kind, cases, seed)


def main(
    folder: Annotated[Path, typer.Option(help="where the wheel's files, the packages and compiled launches are kept")],
    model: Annotated[str, typer.Option(help="dsv41 or dsv4_pro; both when absent")] = "",
    kind: Annotated[str, typer.Option(help="one layer kind; all when absent")] = "",
    rows: Annotated[int, typer.Option(min=1)] = 1,
    decisions: Annotated[int, typer.Option(min=0, help="decide so many random cases instead of running steps")] = 0,
    seed: Annotated[int, typer.Option(help="of the random cases")] = 0,
    threads: Annotated[int, typer.Option(help="host threads; 0: one a core")] = 0,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Runs both dockings on every layer kind; exit code 1 when they differ."""
    if model and model not in MODELS:
        raise typer.BadParameter(f"{model!r} is none of {', '.join(MODELS)}")
    console, failed = Console(), False
    for name in [model] if model else list(MODELS):
        kinds = [k for k in KINDS[name] if kind in ("", k.name)]
        if not kinds:
            raise typer.BadParameter(f"{kind!r} is none of {', '.join(k.name for k in KINDS[name])}")
        about = Model.of(name, folder)
        if decisions:
            outcomes, different = _decisions(about, decisions, seed)
            failed |= bool(different)
            summary = {"model": name, "cases": decisions, "outcomes": outcomes, "different": len(different)}
            console.print(json.dumps(summary), soft_wrap=True)
            for d in different[:20]:
                console.print(f"  {d.case}\n    original: {d.original}\n    emitted:  {d.emitted}", markup=False)
            continue
        for one in kinds:
            simulator = Simulator("gfx950", ranks=about.tp, threads=threads or None)
            with simulate(simulator, cache_dir=folder / "compiled") as host:
                world = World(host, about.tp)
                install(world)
                about.install()
                result = {"model": name, "kind": one.name, "rows": rows} | _run(about, one, rows, host, world)
            failed |= not (result["same"] and result["finite"])
            seconds = SimpleNamespace(**result["seconds"])
            if as_json:
                print(json.dumps(result), flush=True)
            else:
                console.print(
                    f"{name:9} {one.name:12} {rows} rows tp{about.tp}: "
                    f"{'the same bits' if result['same'] else '[red]outputs differ[/red]'}"
                    f"{'' if result['finite'] else ', [red]not finite[/red]'}"
                    f" (original {seconds.original} s, emitted {seconds.emitted} s)",
                    soft_wrap=True,
                )
    raise typer.Exit(1 if failed else 0)


if __name__ == "__main__":
    typer.run(main)
