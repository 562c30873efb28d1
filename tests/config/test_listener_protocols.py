"""What the settings say of a listener's protocol agrees with what speaks it (`gateway.protocols`)."""

from config.listener_protocols import LISTENER_PROTOCOLS
from gateway.protocols import PROTOCOLS
from limiter.protocols import PROTOCOL_NAMES, spoken_behind


def test_every_protocol_can_be_configured_and_no_other() -> None:
    assert list(LISTENER_PROTOCOLS) == list(PROTOCOLS)


def test_name_servers_open_listeners_of_the_protocol_that_rules_are_for() -> None:
    for name, protocol in PROTOCOLS.items():
        settings = LISTENER_PROTOCOLS[name]
        assert settings.opens_listeners == bool(protocol.brokers_speak)
        assert settings.names.name == (protocol.brokers_speak or name) == spoken_behind(name)


def test_rules_can_be_written_for_what_every_listener_lets_through() -> None:
    assert {each.names.name for each in LISTENER_PROTOCOLS.values()} == set(PROTOCOL_NAMES)
