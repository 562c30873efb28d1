"""What `make outdated` says of a version, and that it knows of all that the tests fetch. Registries are not asked here."""

from __future__ import annotations

import pytest

from support import outdated
from support.outdated import NEWER, RegistryError, behind, judged
from support.pins import Pin, pins, versions_of


@pytest.mark.parametrize(
    ("ours", "newest", "word"),
    [
        ("5.37.1", "5.37.1", ""),
        ("5.38", "5.37.1", ""),
        ("5.37", "5.37.1", "patch"),
        ("5.36.9", "5.37.1", "minor"),
        ("5.35.0", "5.37.1", "far"),
        ("4.37.1", "5.0.0", "far"),
        ("33.7.0-jre", "33.8.0-jre", "minor"),
        ("2.1.2", "2.1.3-0.20251226070945-2173d070fd1b", "patch"),
    ],
)
def test_how_far_a_version_is_behind(ours: str, newest: str, word: str) -> None:
    assert behind(ours, newest) == word


def test_an_old_version_is_kept_where_the_name_of_its_file_says_so() -> None:
    old = Pin("maven", "org.apache.rocketmq:rocketmq-client", "4.9.8", "maven/rocketmq-client-4.9.8.pom.xml")
    assert judged(old, "5.5.0") == ("old on purpose", False)
    assert judged(Pin("maven", old.name, "4.9.8", "maven/rocketmq.pom.xml"), "5.5.0") == ("BEHIND", True)


def test_every_registry_has_its_libraries() -> None:
    assert {pin.registry for pin in pins()} == set(outdated.REGISTRIES)
    for name in ("com.rabbitmq:amqp-client", "org.apache.rocketmq:rocketmq-client-java", "pika", "github.com/rabbitmq/amqp091-go"):
        assert versions_of(name), name
    with pytest.raises(KeyError):
        versions_of("lapin")


def test_a_library_has_one_version_that_is_not_old_on_purpose() -> None:
    """So nothing is tested at two versions because one place was forgotten."""
    current: dict[str, set[str]] = {}
    for pin in pins():
        if not pin.kept:
            current.setdefault(pin.name, set()).add(pin.version)
    assert {name: versions for name, versions in current.items() if len(versions) > 1} == {}


def test_what_maven_says_is_read_also_where_it_wraps_a_line() -> None:
    said = (
        "[INFO]   com.google.guava:guava ............................ 0 -> 33.8.0-jre\n"
        "[INFO]   org.apache.rocketmq:rocketmq-client-java-with-a-long-name ...\n[INFO]                                  0 -> 5.2.0\n"
    )
    assert [(name, newest) for name, _, newest in NEWER.findall(said)] == [
        ("com.google.guava:guava", "33.8.0-jre"),
        ("org.apache.rocketmq:rocketmq-client-java-with-a-long-name", "5.2.0"),
    ]


def test_a_registry_that_cannot_be_asked_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def unreachable(_: list[str]) -> dict[str, str]:
        raise RegistryError("no route")

    newest = {pin.name: pin.version for pin in pins()}
    monkeypatch.setattr(outdated, "REGISTRIES", dict.fromkeys(("pypi", "npm", "maven"), lambda names: newest) | {"go": unreachable})
    assert outdated.main() == 2
    said = capsys.readouterr()
    assert "go could not be asked, so nothing is known of" in said.err
    assert "amqp091-go" in said.err
    assert "amqp-client" in said.out


def test_two_minor_versions_behind_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    newest = {pin.name: pin.version for pin in pins()} | {"pika": "99.0"}
    monkeypatch.setattr(outdated, "REGISTRIES", {"pypi": lambda names: newest})
    assert outdated.main() == 1
    assert any("pika" in line and "BEHIND" in line for line in capsys.readouterr().out.splitlines())
