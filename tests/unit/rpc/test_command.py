"""What the command line does with arguments that no message could take."""

from __future__ import annotations

import pytest

from controller.rpc.command import main

TOO_MANY = str(2**63)
BYTES, SECONDS = "is no number of bytes from 0 to 9223372036854775807", "is no number of seconds up to 3600"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["expand-volume", "v", TOO_MANY], f"size_bytes: '{TOO_MANY}' {BYTES}"),
        (["hold-expansion", "v", "-1"], f"size_bytes: '-1' {BYTES}"),
        (["hold-expansion", "v", "1e9"], f"size_bytes: '1e9' {BYTES}"),
        (["schedule-backing-image", "i", "--size-bytes", TOO_MANY], f"--size-bytes: '{TOO_MANY}' {BYTES}"),
        *(
            (["find-disk-candidates", "v", f"--seconds={text}"], f"--seconds: {text!r} {SECONDS}")
            for text in ("0", "-1", "nan", "inf", "1e300", "soon")
        ),
        (["schedule-replica", "v", "\udcff"], r"replica: '\udcff' has characters that cannot be sent"),
    ],
)
def test_an_argument_that_cannot_be_sent_is_named(
    words: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*words, "--secret", "s"])
    assert 2 == ended.value.code
    assert problem in capsys.readouterr().err
