"""The environment contract, read from a rank's side."""

from pathlib import Path

import pytest

from hetccl.settings import SettingsError, TraceSettings, from_environment, requested


def test_nothing_but_the_vendor_is_needed() -> None:
    settings = from_environment({"HETCCL_VENDOR": "amd"})
    assert (settings.vendor, settings.pool, settings.job, settings.transport) == ("amd", "amd", "", "Auto")
    assert (settings.token, settings.report_port, settings.home, settings.simulate) == (b"", None, None, False)
    assert settings.share_memory
    assert settings.log_level == "INFO"


def test_everything_that_the_operator_says_is_read(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    settings = from_environment(
        {
            "HETCCL_VENDOR": "nvidia",
            "HETCCL_POOL": "h100",
            "HETCCL_JOB": "team/job/3",
            "HETCCL_TRANSPORT": "TCP",
            "HETCCL_TOKEN_FILE": str(tmp_path / "token"),
            "HETCCL_REPORT_PORT": "29600",
            "HETCCL_SIMULATE": "1",
            "HETCCL_HOME": "/opt/hetccl",
            "HETCCL_LOG": "DEBUG",
            "NCCL_SOCKET_IFNAME": "=eth0",
            "NCCL_SHM_DISABLE": "1",
            "HETCCL_CHECK": "full",
            "HETCCL_BALANCE": "Static",
            "HETCCL_BALANCE_LOSS": "Sum",
            "HETCCL_WEIGHT": "2.5",
        }
    )
    assert (settings.vendor, settings.pool, settings.job, settings.transport) == ("nvidia", "h100", "team/job/3", "TCP")
    assert (settings.token, settings.report_port, settings.home) == (b"secret", 29600, Path("/opt/hetccl"))
    assert (settings.simulate, settings.log_level, settings.socket_ifname) == (True, "DEBUG", "=eth0")
    assert not settings.share_memory
    assert settings.identity().checks
    assert (settings.balance, settings.balance_loss, settings.weight) == ("Static", "Sum", 2.5)
    assert "secret" not in repr(settings)
    assert "secret" not in repr(settings.identity())


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("HETCCL_VENDOR", "", "a name of lower-case letters"),
        ("HETCCL_VENDOR", "NVIDIA", "a name of lower-case letters"),
        ("HETCCL_POOL", "my pool", "a name of lower-case letters"),
        ("HETCCL_TRANSPORT", "tcp", "Auto, RDMA, TCP"),
        ("HETCCL_TRANSPORT", "", "Auto, RDMA, TCP"),
        ("HETCCL_SIMULATE", "yes", "1, 0"),
        ("HETCCL_REPORT_PORT", "http", "a TCP port, 1 to 65535"),
        ("HETCCL_REPORT_PORT", "0", "a TCP port, 1 to 65535"),
        ("HETCCL_REPORT_PORT", "65536", "a TCP port, 1 to 65535"),
        ("HETCCL_REPORT_PORT", "-1", "a TCP port, 1 to 65535"),
        ("HETCCL_REPORT_PORT", "²", "a TCP port, 1 to 65535"),
        ("HETCCL_TOKEN_FILE", "/no/such/file", "a readable file (No such file or directory)"),
        ("HETCCL_TOKEN_FILE", "/", "a readable file (Is a directory)"),
        ("HETCCL_TOKEN_FILE", "/dev/null", "the file is empty"),
        ("HETCCL_BALANCE", "auto", "Off, Static, Auto"),
        ("HETCCL_WEIGHT", "0", "a number from 0.001 to 1000"),
        ("HETCCL_WEIGHT", "much", "a number from 0.001 to 1000"),
        ("HETCCL_LOG", "loud", "DEBUG, INFO, WARNING, ERROR"),
        ("NCCL_SHM_DISABLE", "true", "1, 0"),
        ("HETCCL_CHECK", "yes", "headers, full"),
        ("HETCCL_TRACE_SIZE", "many", "a number of calls"),
        ("HETCCL_TRACE_SIGNAL", "SIGKILL", "SIGUSR1, SIGUSR2, SIGHUP"),
    ],
)
def test_a_value_that_is_not_allowed_is_named_with_what_is(variable: str, value: str, allowed: str) -> None:
    with pytest.raises(SettingsError) as raised:
        from_environment({"HETCCL_VENDOR": "nvidia", variable: value})
    assert raised.value.variable == variable
    assert str(raised.value).startswith(f"{variable} is {value!r}; allowed: ")
    assert allowed in str(raised.value)


def test_the_flight_recorder_has_pytorchs_names_where_it_has_none_of_its_own() -> None:
    job = {"HETCCL_VENDOR": "amd", "HETCCL_JOB": "team/job/3"}
    torchs = {
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "7",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/var/rank_",
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "/var/ask_",
    }
    ours = {"HETCCL_TRACE_SIZE": "0", "HETCCL_TRACE_FILE": "", "HETCCL_TRACE_PIPE": "", "HETCCL_TRACE_SIGNAL": "SIGHUP"}
    assert from_environment(job | torchs).trace == TraceSettings(7, "/var/rank_", "/var/ask_", "")
    assert from_environment(job | torchs | ours).trace == TraceSettings(0, "", "", "SIGHUP")
    default = from_environment(job).trace
    assert (default.size, default.pipe, default.signal) == (2000, "", "")
    assert default.file.endswith("/team-job-3/rank_"), "jobs do not mix, nor their attempts"


def test_a_process_without_a_vendor_is_none_of_ours() -> None:
    assert not requested({"HETCCL_SIMULATE": "1", "HETCCL_POOL": "a"})
    assert requested({"HETCCL_VENDOR": "cpu"})


@pytest.mark.parametrize(
    ("vendor", "simulate", "needs_device", "simulated"),
    [("nvidia", "0", True, False), ("amd", "1", False, True), ("cpu", "0", False, False), ("cpu", "1", False, False)],
)
def test_only_a_gpu_vendors_rank_is_simulated(vendor: str, simulate: str, needs_device: bool, simulated: bool) -> None:
    settings = from_environment({"HETCCL_VENDOR": vendor, "HETCCL_SIMULATE": simulate})
    assert (settings.needs_device, settings.simulated) == (needs_device, simulated)
