"""Layers and where values came from; every mistake at once, with its place, in plain words."""

import json
from pathlib import Path

import pytest

from cluster import config, yamltext
from cluster.config import ConfigError, Loaded
from cluster.errors import UsageError
from tests.cluster.toy import Config


@pytest.fixture(autouse=True)
def _in_folder(folder: Path) -> None:
    """All tests here know the toy recipe and start in an empty folder."""


def write(text: str, name: str = "run.yaml") -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def launcher(block: str) -> Path:
    indented = "".join(f"    {line}\n" for line in block.splitlines())
    return write(f"cluster_name: x\nmetadata:\n  corymb:\n{indented}", "ray_config.yaml")


def toy(loaded: Loaded) -> Config:
    assert isinstance(loaded.config, Config)
    return loaded.config


def problems(text: str, *sets: str, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        config.load(write(text), sets=sets, environ=environ)
    assert caught.value.exit_code == 2
    assert str(caught.value) == "\n".join(caught.value.problems)
    return caught.value.problems


# Layers


def test_each_layer_beats_those_below() -> None:
    """Layers are added from the weakest; the same key must follow each of them."""
    file = write("recipe: toy\n")
    found = config.load(file)
    assert (toy(found).steps, found.origins["steps"]) == (6, "preset small")
    assert (toy(found).stage.rate, found.origins["stage.rate"]) == (0.1, "recipe default")

    defaults = launcher("steps: 11")
    found = config.load(file, defaults=defaults)
    assert (toy(found).steps, found.origins["steps"]) == (11, "ray_config.yaml:4")

    defaults = launcher("steps: 11\nrecipes:\n  toy:\n    steps: 12\n  fedgmm:\n    rows: 1")
    found = config.load(file, defaults=defaults)
    assert (toy(found).steps, found.origins["steps"]) == (12, "ray_config.yaml:7")

    file = write("recipe: toy\n\nsteps: 13\n")
    found = config.load(file, defaults=defaults)
    assert (toy(found).steps, found.origins["steps"]) == (13, "run.yaml:3")

    environ = {"CORYMB__STEPS": "14", "OTHER": "1"}
    found = config.load(file, defaults=defaults, environ=environ)
    assert (toy(found).steps, found.origins["steps"]) == (14, "environment CORYMB__STEPS")

    found = config.load(file, defaults=defaults, environ=environ, sets=["steps=15"])
    assert (toy(found).steps, found.origins["steps"]) == (15, "--set steps")

    found = config.load(file, environ=environ, sets=["steps=15", "steps=16"])
    assert toy(found).steps == 16


def test_blocks_merge_and_lists_are_replaced() -> None:
    defaults = launcher("words: [a, b, c]\nstage:\n  kind: momentum\n  width: 3")
    file = write("recipe: toy\nwords: [d]\nstage:\n  width: 4\n")
    found = config.load(file, defaults=defaults, sets=["stage.rate=1e-1"])
    assert toy(found).words == ("d",)
    assert toy(found).stage.model_dump() == {"rate": 0.1, "kind": "momentum", "width": 4}
    assert found.origins["words"] == "run.yaml:2"
    assert found.origins["stage.kind"] == "ray_config.yaml:6"
    assert found.origins["stage.width"] == "run.yaml:4"
    assert found.origins["stage.rate"] == "--set stage.rate"


def test_every_leaf_has_an_origin() -> None:
    found = config.load(write("recipe: toy\nstages:\n  a:\n    width: 1\n"))
    assert found.origins["stages.a.width"] == "run.yaml:4"
    assert found.origins["stages.a.rate"] == "recipe default"
    assert found.origins["recipe"] == "run.yaml:1"
    assert found.origins["cluster.num_cpus"] == "recipe default"

    def leaves(data: object, path: str = "") -> set[str]:
        if not isinstance(data, dict) or not data:
            return {path}
        return {x for k, v in data.items() for x in leaves(v, f"{path}.{k}" if path else k)}

    assert set(found.origins) == leaves(found.config.model_dump(mode="json"))


def test_preset_from_each_layer() -> None:
    file = write("recipe: toy\n")
    assert toy(config.load(file, preset="smoke")).steps == 3
    assert toy(config.load(file, sets=["preset=smoke"])).steps == 3
    assert toy(config.load(file, environ={"CORYMB__PRESET": "smoke"})).steps == 3
    assert toy(config.load(file, defaults=launcher("preset: smoke"))).steps == 3
    file = write("recipe: toy\npreset: smoke\n")
    found = config.load(file)
    assert (toy(found).steps, toy(found).stage.width, found.config.preset) == (3, 2, "smoke")
    assert found.origins["stage.width"] == "preset smoke"
    assert toy(config.load(file, preset="small")).steps == 6
    assert config.load(file, preset="small").origins["preset"] == "--preset"
    with pytest.raises(ConfigError, match=r"^--preset: preset: there is no preset 'smok'"):
        config.load(file, preset="smok")


def test_without_a_file() -> None:
    found = config.load(None, recipe="toy", sets=["steps=2"])
    assert (found.config.recipe, toy(found).steps) == ("toy", 2)
    assert config.load(write("recipe: toy\n"), recipe="fedgmm").config.recipe == "toy"
    with pytest.raises(ConfigError, match="recipe: is required"):
        config.load(None)


def test_absent_launcher_file_or_block_is_no_error() -> None:
    file = write("recipe: toy\n")
    assert toy(config.load(file, defaults=Path("nowhere.yaml"))).steps == 6
    assert toy(config.load(file, defaults=write("metadata: {}\n", "r.yaml"))).steps == 6
    assert toy(config.load(file, defaults=write("metadata:\n", "r.yaml"))).steps == 6
    assert toy(config.load(file, defaults=launcher("recipes:"))).steps == 6


def test_launcher_block_is_checked() -> None:
    file = write("recipe: toy\n")
    for text, said in [
        ("metadata:\n  corymb: 3\n", "ray_config.yaml:2: metadata.corymb: expected a block"),
        ("metadata:\n  corymb:\n    stpes: 1\n", "ray_config.yaml:3: stpes: unknown key; did you"),
        (
            "metadata:\n  corymb:\n    recipes:\n      tpy: {}\n",
            "ray_config.yaml:4: recipes.tpy: There is no recipe 'tpy'; did you mean 'toy'?",
        ),
        ("metadata:\n  corymb:\n    recipes: 3\n", "ray_config.yaml:3: recipes: expected a block"),
    ]:
        with pytest.raises(ConfigError) as caught:
            config.load(file, defaults=write(text, "ray_config.yaml"))
        assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("text", "meant"),
    [("1e-3", 0.001), ("10", 10.0), ("2.5", 2.5)],
)
def test_set_and_environment_are_read_as_yaml(text: str, meant: float) -> None:
    file = write("recipe: toy\n")
    assert toy(config.load(file, sets=[f"stage.rate={text}"])).stage.rate == meant
    environ = {"CORYMB__STAGE__RATE": text}
    assert toy(config.load(file, environ=environ)).stage.rate == meant


def test_set_takes_lists_blocks_and_equals_signs() -> None:
    file = write("recipe: toy\n")
    sets = ["words=[on, '12', a=b]", "stage={width: 3, kind: momentum}", "label=a=b", "fail_at="]
    found = toy(config.load(file, sets=sets))
    assert found.words == ("on", "12", "a=b")
    assert (found.stage.width, found.stage.kind, found.stage.rate) == (3, "momentum", 0.1)
    assert found.label == "a=b"
    assert found.fail_at is None
    assert toy(config.load(file, sets=["stages.new.width=3"])).stages["new"].width == 3


def test_types_are_kept() -> None:
    found = toy(config.load(write("recipe: toy\nsteps: 1e2\nstage: {rate: 1}\nseeds: [3, 012]\n")))
    assert (found.steps, found.seeds) == (100, (3, 12))
    assert isinstance(found.stage.rate, float)
    assert isinstance(found.steps, int)


# Paths


def test_paths_start_from_the_layer_they_stand_in(folder: Path) -> None:
    defaults = write("metadata: {corymb: {folder: shared}}\n", "etc/ray_config.yaml")
    file = write("recipe: toy\ntable: rows.csv\n", "project/run.yaml")
    found = toy(config.load(file, defaults=defaults))
    assert found.folder == str(folder / "etc/shared")
    assert found.table == str(folder / "project/rows.csv")
    assert found.output == str(folder / "runs")

    found = toy(config.load(file, environ={"CORYMB__TABLE": "rows.csv"}, sets=["folder=../up"]))
    assert found.table == str(folder / "rows.csv")
    assert found.folder == str(folder.parent / "up")

    found = toy(config.load(file, sets=["table=/data/rows.csv", "folder=~/x"]))
    assert found.table == "/data/rows.csv"
    assert found.folder == str(Path("~/x").expanduser())


def test_a_recipes_optional_path_is_made_absolute(folder: Path) -> None:
    text = "recipe: fedgmm\ndata: {source: file, path: rows.csv, outcome: y, treatments: [x], "
    file = write(text + "instruments: [z]}\n", "project/run.yaml")
    data = config.load(file).config.model_dump()["data"]
    assert data["path"] == str(folder / "project/rows.csv")


# Mistakes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("stpes: 3", "run.yaml:2: stpes: unknown key; did you mean 'steps'?"),
        ("stage:\n  rat: 3", "run.yaml:3: stage.rat: unknown key; did you mean 'rate'?"),
        ("stages:\n  a:\n    rat: 3", "run.yaml:4: stages.a.rat: unknown key; did you mean 'rate'"),
        ("stage:\n  qqq: 3", "run.yaml:3: stage.qqq: unknown key; known keys: rate, kind, width"),
        ("steps: ten", "run.yaml:2: steps: expected a whole number, got 'ten'"),
        ("steps: '3'", "run.yaml:2: steps: expected a whole number, got '3'"),
        ("steps: 3.5", "run.yaml:2: steps: expected a whole number, got 3.5"),
        ("steps: true", "run.yaml:2: steps: expected a whole number, got true"),
        ("steps:", "run.yaml:2: steps: expected a whole number, got nothing"),
        ("steps: 0", "run.yaml:2: steps: must be at least 1, got 0"),
        ("steps: 1e5", "run.yaml:2: steps: must be at most 1000, got 100000"),
        ("stage: {rate: 0}", "run.yaml:2: stage.rate: must be more than 0, got 0"),
        ("stage: {rate: .nan}", "run.yaml:2: stage.rate: must be"),
        ("stage: {rate: fast}", "run.yaml:2: stage.rate: expected a number, got 'fast'"),
        ("verbose: on", "run.yaml:2: verbose: expected true or false, got 'on'"),
        ("label: 12", "run.yaml:2: label: expected a text, got 12"),
        ("words: a", "run.yaml:2: words: expected a list, got 'a'"),
        ("words:\n  - a\n  - 2", "run.yaml:4: words.1: expected a text, got 2"),
        ("stage: 3", "run.yaml:2: stage: expected a block of keys, got 3"),
        ("stages: [1]", "run.yaml:2: stages: expected a block of keys, got [1]"),
        ("seeds: []", "run.yaml:2: seeds: needs at least 1 entries"),
        ("seeds: [1, -1]", "run.yaml:2: seeds.1: must be at least 0, got -1"),
        (
            "stage:\n  kind: momentun",
            "run.yaml:3: stage.kind: must be one of plain, momentum, got 'momentun'; "
            "did you mean 'momentum'?",
        ),
        (
            "solver:\n  name: adm",
            "run.yaml:2: solver: name must be one of adam, sgd, got 'adm'; did you mean 'adam'?",
        ),
        ("solver:\n  beta: 1.0", "run.yaml:2: solver: needs the key 'name'"),
        ("solver:\n  name: sgd\n  momentun: 1", "run.yaml:4: solver.momentun: unknown key; did"),
        ("solver:\n  name: sgd\n  momentum: x", "run.yaml:4: solver.momentum: expected a number"),
        ("preset: smal", "run.yaml:2: preset: there is no preset 'smal'; did you mean 'small'?"),
        ("preset: zzz", "run.yaml:2: preset: there is no preset 'zzz'; presets: small, smoke"),
        ("preset: [a]", "run.yaml:2: preset: there is no preset"),
        ("cluster:\n  num_cpu: 2", "run.yaml:3: cluster.num_cpu: unknown key; did you mean"),
    ],
)
def test_one_mistake(text: str, said: str) -> None:
    (problem,) = problems(f"recipe: toy\n{text}\n")
    assert problem.startswith(said)


def test_all_mistakes_at_once_each_with_its_own_place() -> None:
    found = problems(
        "recipe: toy\nstpes: 1\nstage:\n  rate: -1\n  kind: x\nlabel: 3\n",
        "verbose=perhaps",
        environ={"CORYMB__STAGE__WIDTH": "wide", "CORYMB__OUTPT": "x"},
    )
    starts = [
        "run.yaml:2: stpes: unknown key",
        "run.yaml:4: stage.rate: must be more than 0",
        "run.yaml:5: stage.kind: must be one of",
        "run.yaml:6: label: expected a text",
        "--set verbose: verbose: expected true or false",
        "environment CORYMB__STAGE__WIDTH: stage.width: expected a whole number",
        "environment CORYMB__OUTPT: outpt: unknown key; did you mean 'output'?",
    ]
    assert len(found) == len(starts)
    for start in starts:
        assert sum(problem.startswith(start) for problem in found) == 1, start


def test_problem_of_a_whole_block_names_the_file_or_the_argument() -> None:
    with pytest.raises(ConfigError) as caught:
        config.load(None, recipe="fedgmm", sets=["data.source=file"])
    assert str(caught.value).startswith("--set data.source: data: source 'file' also needs path")
    text = "recipe: fedgmm\npartition:\n  clients: 2\ndata:\n  source: file\n"
    (problem,) = problems(text, "seeds=[1]")
    assert problem.startswith("run.yaml:4: data: source 'file' also needs path")


def test_a_mistake_in_an_argument_shows_through_the_file_below() -> None:
    (problem,) = problems("recipe: toy\nsteps: 3\n", "steps=many")
    assert problem == "--set steps: steps: expected a whole number, got 'many'"


def test_unknown_recipes_are_placed() -> None:
    (problem,) = problems("# a run\nrecipe: tpy\n")
    assert problem == "run.yaml:2: recipe: There is no recipe 'tpy'; did you mean 'toy'?"
    (problem,) = problems("recipe: toy\n", "recipe=zzzzz")
    assert problem.startswith("--set recipe: recipe: There is no recipe 'zzzzz'; known recipes:")
    (problem,) = problems("steps: 3\n")
    assert problem.startswith("run.yaml: recipe: is required")


@pytest.mark.parametrize("text", ["", "\n# nothing\n"])
def test_empty_file(text: str) -> None:
    (problem,) = problems(text)
    assert problem.startswith("run.yaml:1: the file is empty")


@pytest.mark.parametrize("text", ["- recipe\n", "toy\n", "12\n"])
def test_top_level_must_be_keys(text: str) -> None:
    (problem,) = problems(text)
    assert problem.startswith("run.yaml:1: expected `key: value` lines")


def test_files_that_cannot_be_read() -> None:
    with pytest.raises(UsageError, match=r"There is no file nowhere\.yaml"):
        config.load(Path("nowhere.yaml"))
    Path("folder.yaml").mkdir()
    with pytest.raises(UsageError, match=r"folder\.yaml cannot be read"):
        config.load(Path("folder.yaml"))
    Path("binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match=r"binary\.yaml cannot be read"):
        config.load(Path("binary.yaml"))


def test_arguments_without_a_value() -> None:
    assert problems("recipe: toy\n", "steps", "=3", "stage..rate=1", "steps=2") == [
        "--set steps: expected a.b=value",
        "--set =3: expected a.b=value",
        "--set stage..rate=1: expected a.b=value",
    ]
    with pytest.raises(UsageError, match=r"^--set words:1: not valid YAML"):
        config.load(write("recipe: toy\n"), sets=["words=[1, "])
    with pytest.raises(UsageError, match=r"^environment CORYMB__WORDS:1: not valid YAML"):
        config.load(write("recipe: toy\n"), environ={"CORYMB__WORDS": "[1, "})


def test_a_scalar_in_the_way_of_a_block() -> None:
    (problem,) = problems("recipe: toy\nsteps: 3\n", "steps.more=1")
    assert problem.startswith("--set steps.more: steps: expected a whole number")


# Writing


def test_dump_is_read_back_equal(folder: Path) -> None:
    text = "recipe: toy\nlabel: '1e-3'\nwords: ['12', on, '', 'null', 'a: b', 'é']\n"
    sets = ["stages={'12': {width: 3}, on: {rate: 1e-7}}", "cluster.wait_for_resources=.inf"]
    found = config.load(write(text), preset="smoke", sets=sets)
    again = config.load(write(config.dump(found.config), "elsewhere/config.yaml"))
    assert again.config == found.config
    assert set(again.origins.values()) <= {
        f"config.yaml:{line}" for line in range(1, len(config.dump(found.config).splitlines()) + 1)
    }


def test_dump_spells_every_value_out() -> None:
    found = config.load(write("recipe: toy\n"))
    data = yamltext.parse(config.dump(found.config), "dump").data
    assert data == json.loads(found.config.model_dump_json())


def test_schema_describes_the_recipe() -> None:
    schema = config.schema("toy")
    assert schema["additionalProperties"] is False
    assert schema["properties"]["steps"]["minimum"] == 1
    assert {"recipe", "seeds", "cluster", "stage"} <= set(schema["properties"])
    json.dumps(schema)
