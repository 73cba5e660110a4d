"""What a release needs says the same everywhere: versions of Python, dependencies, addresses."""

import re
import tomllib
from pathlib import Path

import shorthash

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = {path.stem: path.read_text() for path in (ROOT / ".github" / "workflows").glob("*.yml")}


def test_every_python_that_is_claimed_is_tested():
    claimed = [c.rsplit(" ", 1)[1] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)]
    tested = re.search(r"python: \[(.*)\]", WORKFLOWS["ci"]).group(1)
    assert re.findall(r"[\d.]+", tested) == claimed
    assert PROJECT["requires-python"] == f">={claimed[0]}"


def test_workflows_run_targets_that_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    used = {name for text in WORKFLOWS.values() for name in re.findall(r"run: make (\w+)", text)}
    assert {"lint", "numerics", "lowest", "docs", "wheel"} <= used <= targets


def test_the_conda_recipe_has_our_version_and_dependencies():
    recipe = (ROOT / "recipe" / "meta.yaml").read_text()
    assert f'version = "{shorthash.__version__}"' in recipe
    run = re.search(r"  run:\n((?:    - .*\n)+)", recipe).group(1)
    listed = {line.strip("- ").replace(" ", "") for line in run.splitlines()}
    assert listed == {*PROJECT["dependencies"], f"python{PROJECT['requires-python']}"}


def test_addresses_agree():
    home, repository = PROJECT["urls"]["Homepage"], PROJECT["urls"]["Repository"]
    citation, configuration = (ROOT / "CITATION.cff").read_text(), (ROOT / "docs" / "conf.py").read_text()
    for text in (citation, configuration, (ROOT / "recipe" / "meta.yaml").read_text()):
        assert home in text
        assert repository in text


def test_the_citation_has_a_year_and_an_address():
    citation, readme = (ROOT / "CITATION.cff").read_text(), (ROOT / "README.md").read_text()
    entry = dict(re.findall(r"^  (\w+) += \{+(.*?)\}+,?$", readme.partition("@software")[2].partition("```")[0], re.M))
    facts = dict(re.findall(r"^([\w-]+): \"?(.*?)\"?$", citation, re.M))
    assert entry["year"] == facts["date-released"][:4]
    assert entry["url"] == facts["repository-code"]
    assert entry["title"] == facts["title"]
    assert all("    url: https://" in part for part in citation.split("  - type: ")[1:])


def test_the_package_says_that_it_is_typed():
    assert (Path(shorthash.__file__).parent / "py.typed").exists()
    assert "Typing :: Typed" in PROJECT["classifiers"]
