"""`sluice init`: a first configuration, for a broker that is found on this host or named."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cli.broker_search import USUAL_PORTS, Broker, brokers, listening_sockets
from cli.exits import CommandError
from cli.init_files import FilesPlan, changes_at_broker, host_of, limits_yaml, port_of, sluice_yaml
from cli.output import clean, print_status
from cli.verb import Verb
from common.failures import FAILED, INVALID, NOT_FOUND, OK, USAGE
from common.figures import pluralise
from common.shell_words import quote_word
from config.command_line import every_address
from config.listener_protocols import LISTENER_PROTOCOLS

if TYPE_CHECKING:
    from config import Settings

LIMIT: Final = "500/s"  # proposed; many brokers take more than ten times as much (a guess)
EVERYWHERE: Final = "0.0.0.0"  # noqa: S104  -- as the broker has it
LOOPBACK: Final = "127.0.0.1"
FILES: Final = ("sluice.yaml", "limits.yaml")


def _ports(_: click.Context, __: click.Parameter, value: str | None) -> set[int] | None:
    try:
        return None if value is None else {int(word) for word in value.split(",")}
    except ValueError:
        raise click.BadParameter("write ports like 5672,5673") from None


INIT_EXAMPLE: Final = """\
sluice init
sluice init --yes --directory gateway
sluice init --yes --protocol amqp --bind :5672 --upstream 127.0.0.1:5673 --limit 500/s --directory orders"""


@click.command(cls=Verb, example=INIT_EXAMPLE)
@click.option("--protocol", type=click.Choice(list(LISTENER_PROTOCOLS)), help="What the broker speaks; default: what is found.")
@click.option("--bind", metavar="HOST:PORT", help="Where clients will connect; `:5672` is on all addresses.")
@click.option(
    "--upstream",
    metavar="HOST:PORT,...",
    help="Where the broker is, or several addresses of a cluster, the preferred one first; default: one that is found on this host.",
)
@click.option("--limit", "limits", multiple=True, metavar="RATE", help=f"Each topic's limit: 500/s, 5MiB/s or both; default: {LIMIT}.")
@click.option(
    "--ports", metavar="PORT,...", callback=_ports, help="Look for a broker on these ports only; default: on all from 1024 that listen."
)
@click.option("--directory", type=click.Path(path_type=Path), default=Path(), help="Where to write; default: here.")
@click.option("--force", is_flag=True, help="Write over files that are there.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask: take what is proposed.")
@click.pass_context
def init(
    ctx: click.Context, /, protocol: str | None, bind: str | None, upstream: str | None, limits: tuple[str, ...],
    ports: set[int] | None, directory: Path, **switches: bool,
) -> None:  # fmt: skip
    """Write a first sluice.yaml and limits.yaml, with comments, and check them.

    It looks for a RabbitMQ or a RocketMQ on this host: listening sockets are asked in both protocols. What is found, and what it proposes
    (a port to listen on, or how the broker makes room), can be changed by answers or by options. Nothing is changed at the broker.
    """
    asks = not switches["yes"] and sys.stdin.isatty()
    if not asks and not switches["yes"] and not (protocol and bind and upstream):
        raise CommandError(USAGE, "there is no terminal to ask on; add --yes, or give --protocol, --bind and --upstream")
    refuse_to_overwrite(directory, force=switches["force"])
    sockets = [each for each in listening_sockets() if ports is None or each[1] in ports]
    plan = make_plan(sockets, protocol, bind, upstream, asks=asks)
    given = tuple(each.strip() for limit in limits for each in limit.split(","))
    if not given and asks:
        given = tuple(each.strip() for each in str(ask("Limit of each topic, in messages and/or bytes per second", LIMIT)).split(","))
    plan = replace(plan, limits=given or (LIMIT,))
    settings = write(directory, plan)
    for line in next_steps(directory, plan, settings):
        click.echo(line)
    ctx.exit(OK)


def refuse_to_overwrite(directory: Path, *, force: bool) -> None:
    """Raises CommandError."""
    there = [str(directory / name) for name in FILES if (directory / name).exists()]
    if there and not force:
        raise CommandError(
            USAGE, f"{' and '.join(there)} are there already; nothing was written", ["add --force, or choose another --directory"]
        )


def ask(question: str, default: str, choices: list[str] | None = None) -> Any:
    kind = click.Choice(choices) if choices else None
    return click.prompt(clean(question), default=default, type=kind, err=True, show_choices=False)


# ---- what to write -----------------------------------------------------------------------------------------------------


def make_plan(sockets: list[tuple[str, int]], protocol: str | None, bind: str | None, upstream: str | None, *, asks: bool) -> FilesPlan:
    """What to write, but for the limits. Raises CommandError."""
    if protocol and bind and upstream:
        return FilesPlan(protocol, every_address(bind), upstream, ())
    found: Broker | None = None
    if upstream is None:
        found = choose_broker(sockets, protocol, asks=asks)
        if found is None:  # it was asked for, and is somewhere else
            protocol = protocol or str(ask("What does your broker speak? amqp, rocketmq, rocketmq-nameserver", "amqp", list(USUAL_PORTS)))
            upstream = str(ask("Where is it (host:port)?", f"{LOOPBACK}:{USUAL_PORTS[protocol]}"))
    if found is not None:
        return beside(found, sockets, bind, asks=asks)
    if protocol is None:
        raise CommandError(USAGE, f"--upstream needs --protocol: {', '.join(LISTENER_PROTOCOLS)}")
    proposed = f"{LOOPBACK}:{free_port(sockets, USUAL_PORTS[protocol])}"
    where = bind or (ask("Where shall clients connect (host:port)?", proposed) if asks else proposed)
    return with_advertise(FilesPlan(protocol, every_address(str(where)), str(upstream), ()))


def choose_broker(sockets: list[tuple[str, int]], protocol: str | None, *, asks: bool) -> Broker | None:
    """The broker to stand in front of; None where it is another than those found. Raises CommandError."""
    print_status(f"looking at {pluralise(len({port for _, port in sockets}), 'listening port')} of this host ...")
    found = [each for each in brokers(sockets) if protocol in (None, each.protocol)]
    for number, each in enumerate(found, 1):
        print_status(f"  {number}. {describe_broker(each)}")
    if not found:
        print_status("  no broker has answered")
        if not asks:
            raise CommandError(
                NOT_FOUND,
                "no broker is found on this host",
                ["start it, or name it: sluice init --protocol amqp --upstream HOST:PORT --yes"],
            )
        return None
    if not asks or len(found) == 1:
        if len(found) > 1:
            print_status(f"taking the first; for another: --upstream {found[1].address} --protocol {found[1].protocol}")
        return found[0]
    return found[int(ask("Which one is to be protected?", "1", [str(number) for number in range(1, len(found) + 1)])) - 1]


def describe_broker(broker: Broker) -> str:
    what = {"amqp": "AMQP broker", "rocketmq": "RocketMQ broker", "rocketmq-nameserver": "RocketMQ name server"}[broker.protocol]
    return f"{broker.product or what} at {broker.address}{', on all addresses' if broker.everywhere else ''}"


def beside(broker: Broker, sockets: list[tuple[str, int]], bind: str | None, *, asks: bool) -> FilesPlan:
    """A gateway in front of a broker on this host: on a port of its own, or on the broker's, which then makes room."""
    host = EVERYWHERE if broker.everywhere else broker.host
    usual = USUAL_PORTS[broker.protocol]
    # RabbitMQ on loopback, and its usual port free: as docs/in-front-of-rabbitmq.md moves it
    made_room = broker.protocol == "amqp" and not broker.everywhere and broker.port != usual and free_port(sockets, usual) == usual
    other = f"{EVERYWHERE}:{usual}" if made_room else f"{host}:{free_port(sockets, broker.port + 1)}"
    if broker.protocol == "rocketmq":  # clients follow the address that the name server tells them: the broker has to make room
        own = f"{own_address() if host == EVERYWHERE else host}:{broker.port}"
        return FilesPlan(broker.protocol, every_address(bind) if bind else own, f"{LOOPBACK}:{broker.port}", (), moves_from=broker.address)
    if bind is None and made_room:
        print_status(
            f"  port {usual} is free: clients connect there as to a broker, from all hosts; from this one alone: --bind {LOOPBACK}:{usual}"
        )
    if bind is None and asks:
        print_status("Where shall clients connect?")
        print_status(f"  1. to {other}: nothing changes at the broker; you give this address to the clients that are to be limited")
        if broker.protocol == "amqp":
            print_status(f"  2. to {host}:{broker.port}, as they do today: the broker moves to another port, by one line and a restart")
        answer = ask("1, 2, or another host:port" if broker.protocol == "amqp" else "1, or another host:port", "1")
        bind = {"1": other, "2": f"{host}:{broker.port}"}.get(str(answer), str(answer))
    bind = every_address(bind or other)
    if broker.protocol == "amqp" and port_of_text(bind) == broker.port:
        return FilesPlan(broker.protocol, bind, f"{LOOPBACK}:{free_port(sockets, broker.port + 1)}", (), moves_from=broker.address)
    return with_advertise(FilesPlan(broker.protocol, bind, broker.address, ()))


def with_advertise(plan: FilesPlan) -> FilesPlan:
    """Routes have to name a host that clients can reach."""
    if plan.protocol == "rocketmq-nameserver" and host_of(plan.bind) == EVERYWHERE:
        return replace(plan, advertise=own_address())
    return plan


def port_of_text(address: str) -> int:
    """The port of an address that may be faulty; 0 where it has none."""
    with suppress(ValueError):
        return port_of(address)
    return 0


def free_port(sockets: list[tuple[str, int]], first: int) -> int:
    """The first port from `first` on that nobody listens on, nor has for a connection of its own."""
    taken = {port for _, port in sockets}
    return next(port for port in range(first, 65536) if port not in taken and can_be_bound(port))


def can_be_bound(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def own_address() -> str:
    """The address of this host that others see: the one that a packet to the outside would have. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # TEST-NET-1, RFC 5737
        except OSError:
            return LOOPBACK
        return str(probe.getsockname()[0])


# ---- writing -----------------------------------------------------------------------------------------------------------


def write(directory: Path, plan: FilesPlan) -> Settings:
    """Write both files, and check them. What is faulty is not left behind. Raises CommandError."""
    from config import ConfigError, lint, load

    before = {name: (directory / name).read_bytes() if (directory / name).exists() else None for name in FILES}
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / FILES[1]).write_text(limits_yaml(plan))
        (directory / FILES[0]).write_text(sluice_yaml(plan))
    except OSError as error:
        raise CommandError(FAILED, f"{directory}: cannot be written to: {error.strerror}; choose another --directory") from None
    try:
        settings = load(directory / FILES[0])
    except ConfigError as error:
        for name, content in before.items():
            (directory / name).unlink() if content is None else (directory / name).write_bytes(content)
        faults = [f"{problem.path}: {problem.message}; {problem.remedy}" for problem in error.errors]
        raise CommandError(INVALID, "what was asked for makes no good configuration; nothing was written", faults) from None
    for warning in lint(settings):
        print_status(f"warning: {warning.headline}")
    return settings


def next_steps(directory: Path, plan: FilesPlan, settings: Settings) -> Iterator[str]:
    """What to type now."""
    from cli.first_steps import command, example_limit

    sluice = command(directory)
    yield f"Written and checked: {' and '.join(str(directory / name) for name in FILES)}"
    yield f"  {', '.join(plan.limits)} for each topic; clients connect to {plan.bind}, the broker is at {plan.upstream}"
    yield ""
    changes = changes_at_broker(plan)
    if changes:
        yield from (f"First: {line}" if not number else f"  {line}" for number, line in enumerate(changes))
        yield ""
    yield "Next:"
    if directory != Path():
        yield f"  cd {quote_word(str(directory))}"
    yield f"  {sluice} run"
    yield "and in another terminal, in the same directory:"
    yield f"  {sluice} topics"
    yield f"  {sluice} {example_limit(settings)}"
    names = settings.listeners[0].speaks.names
    yield f"  {sluice} why {names.name} {' '.join(names.example)}"
