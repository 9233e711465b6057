import pytest

from omnistage.runtime.client.address import DEFAULT_ADDRESS, find_address, is_loopback
from omnistage.runtime.protocol.errors import InvalidRequest


def test_explicit_beats_environment_beats_default():
    environ = {"OMNISTAGE_ADDRESS": "http://gpu:1"}
    assert find_address("http://mine:2/", environ=environ).url == "http://mine:2"
    assert find_address(environ=environ).url == "http://gpu:1"
    assert find_address("", environ={}).url == DEFAULT_ADDRESS


def test_host_and_port_are_enough():
    found = find_address("gpu-box:9000", environ={})
    assert (found.url, found.host, found.port) == ("http://gpu-box:9000", "gpu-box", 9000)
    assert find_address("https://gpu-box", environ={}).port == 443


def test_the_token_goes_to_the_configured_address_only():
    environ = {"OMNISTAGE_ADDRESS": "http://gpu:1", "OMNISTAGE_TOKEN": "secret"}
    assert find_address(environ=environ).token == "secret"
    assert find_address("gpu:1", environ=environ).token == "secret"
    assert find_address("http://evil:1", environ=environ).token is None
    assert find_address("http://evil:1", "its own", environ=environ).token == "its own"
    assert "secret" not in repr(find_address(environ=environ))


@pytest.mark.parametrize(
    "text",
    ["ftp://x:1", "http://", "http://x:99999", "http://x:y", "http://x:0", "http://u:p@x:1",
     "http://x:1?q", "http://x:1#f", "http://a b:1", "http://[::1", "   "],
)  # fmt: skip
def test_what_is_no_address_is_refused_with_an_example(text):
    with pytest.raises(InvalidRequest, match="http://host:port"):
        find_address(text, environ={})


def test_a_wrong_address_in_the_environment_names_the_variable():
    with pytest.raises(InvalidRequest) as caught:
        find_address(environ={"OMNISTAGE_ADDRESS": "ftp://x"})
    assert caught.value.field == "OMNISTAGE_ADDRESS"


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("localhost", True),
        ("::1", True),
        ("[::1]", True),
        ("0.0.0.0", False),
        ("192.168.1.1", False),
        ("localhost.evil.example", False),
        ("", False),
    ],
)
def test_loopback(host, local):
    assert is_loopback(host) is local
