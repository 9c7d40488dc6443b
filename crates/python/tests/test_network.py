"""A server over the network: who may, what is encrypted, and what outlives a connection."""

import json
import subprocess

import pytest

import nearside

from conftest import served

HOST = "nqn.2026-11.example:web"


@pytest.fixture(scope="module")
def keys(command, tmp_path_factory):
    """Files of keys: two of TLS, and two by which ends prove who they are."""
    folder = tmp_path_factory.mktemp("keys")
    for name, words in (("web.tls", ["--tls"]), ("other.tls", ["--tls"]), ("web.key", []), ("other.key", []), ("disks.key", [])):
        subprocess.run([command, "key", "generate", *words, "--out", folder / name], check=True, stdout=subprocess.DEVNULL)
    return folder


@pytest.fixture()
def secured(command, keys, image):
    """Serves the image to one host, as lines of a file say of it."""

    def serve(of_host, more=""):
        (keys / "serve.toml").write_text(
            f"listen = ['127.0.0.1:0']\ncontrol = 'control.sock'\n{more}\n[[subsystem]]\nnqn = 'nqn.2026-11.example:a'\nidentity = 'trust'\n"
            f"[[subsystem.host]]\nnqn = '{HOST}'\n{of_host}\n"
            f"[[subsystem.namespace]]\nnsid = 1\nstore = 'file:{image}'\nread-only = true\n"
        )
        return served(command, "--config", str(keys / "serve.toml"))

    return serve


def hostname(name, **options):
    with nearside.open(name, host_nqn=HOST, as_user=(0, 0), **options) as drive:
        return drive.read("/etc/hostname")


def encrypted(command, keys):
    """Connections of the server that were."""
    ask = [command, "status", "--json", "--control", keys / "control.sock"]
    return json.loads(subprocess.run(ask, check=True, stdout=subprocess.PIPE).stdout)["connections_encrypted"]


def test_a_connection_is_encrypted_by_a_key(secured, keys):
    with secured("tls-key-file = 'web.tls'", "tls = 'required'") as name:
        assert hostname(name, tls_key_file=keys / "web.tls") == b"nearside\n"
        with pytest.raises(nearside.Error, match="the other end does not take the key"):
            hostname(name, tls_key_file=keys / "other.tls")
        with pytest.raises(nearside.Error, match="the target ended the connection"):
            hostname(name)
        with pytest.raises(nearside.Error, match="none.tls: No such file"):
            hostname(name, tls_key_file=keys / "none.tls")


def test_a_host_proves_who_it_is_and_so_does_the_subsystem(command, secured, keys):
    of_host = "key-file = 'web.key'\ncontroller-key-file = 'disks.key'"
    own, theirs = keys / "web.key", keys / "disks.key"
    with secured(of_host) as name:
        assert hostname(name, dhchap_key_file=own, dhchap_ctrl_key_file=theirs) == b"nearside\n"
        assert encrypted(command, keys) == 0
        # What the keys agree on encrypts.
        assert hostname(name, dhchap_key_file=own, concat=True) == b"nearside\n"
        assert encrypted(command, keys) > 0
        with pytest.raises(nearside.Error, match="there is no key"):
            hostname(name)
        with pytest.raises(nearside.Error, match="Authentication failed"):
            hostname(name, dhchap_key_file=keys / "other.key")
        with pytest.raises(nearside.Error, match="did not prove who it is"):
            hostname(name, dhchap_key_file=own, dhchap_ctrl_key_file=keys / "other.key")
    # Its first connection begins in the clear, which this server takes of nobody.
    with secured(of_host, "tls = 'required'") as name, pytest.raises(nearside.Error, match="the target ended the connection"):
        hostname(name, dhchap_key_file=own, concat=True)


def test_a_discovery_service_lists_its_drives(secured, keys):
    with secured("tls-key-file = 'web.tls'", "tls = 'required'") as name:
        service = f"discover:{name.split('/')[2]}"
        assert nearside.drives(service, host_nqn=HOST, tls_key_file=keys / "web.tls") == [name]
        assert nearside.drives(name, service, "disk.img", host_nqn=HOST, tls_key_file=keys / "web.tls") == [name, "disk.img"]
        with pytest.raises(nearside.Error, match=f"{service}: the target ended the connection"):
            nearside.drives(service, host_nqn=HOST)
        with pytest.raises(nearside.Error, match=f"{service}: a discovery service has many drives"):
            nearside.open(service)
    with pytest.raises(nearside.Error, match="discover:127.0.0.1:1: connecting: "):
        nearside.drives("discover:127.0.0.1:1")
    with pytest.raises(TypeError, match="no option of a drive: colour"):
        nearside.drives("disk.img", colour="red")


@pytest.mark.parametrize(
    "options, why",
    [
        ({"concat": True}, "concat needs dhchap_key_file"),
        ({"concat": True, "tls_key_file": "web.tls"}, "concat: tls_key_file encrypts already"),
        ({"dhchap_ctrl_key_file": "disks.key"}, "dhchap_ctrl_key_file needs dhchap_key_file"),
        ({"reconnect_delay": 0}, "reconnect_delay: 0 is no time to wait"),
        ({"reconnect_delay": float("nan")}, "reconnect_delay: NaN is no number of seconds"),
        ({"ctrl_loss_tmo": -1}, "ctrl_loss_tmo: -1 is no number of seconds"),
    ],
)
def test_options_that_make_no_sense_are_said(options, why):
    with pytest.raises(nearside.Error, match=why):
        nearside.open("nvme+tcp://127.0.0.1:1/nqn.2026-11.example:a/1", **options)


def test_a_lost_connection_is_made_again_for_as_long_as_was_said(command, image):
    # An address that no other test listens at.
    words = ["--store", f"file:{image}", "--read-only", "--trust", "--listen"]
    with served(command, *words, "127.83.9.1:0") as name:
        patient = nearside.open(name, as_user=(0, 0), reconnect_delay=0.1, ctrl_loss_tmo=None)
        hasty = nearside.open(name, as_user=(0, 0), ctrl_loss_tmo=0)
        assert patient.read("/etc/hostname") == hasty.read("/etc/hostname") == b"nearside\n"
    with pytest.raises(nearside.Error):
        hasty.read("/etc/hostname")
    with served(command, *words, name.split("/")[2]) as again:
        assert again == name
        assert patient.read("/etc/hostname") == b"nearside\n"
    patient.close()
    hasty.close()
