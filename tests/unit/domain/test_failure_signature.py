"""Signatures: what is the same of failures that are the same."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.failure_signature import (
    SIGNATURE_VERSION,
    Failure,
    failure_groups,
    make_signature,
    mask_variable_parts,
    signature_of,
    similar,
)
from orchestrator.domain.failures import FailureClass, read_raised
from orchestrator.domain.outcome import TestOutcome
from tests.unit.domain.failure_cases import (
    A10G_TESTS,
    PYDANTIC,
    TPU_DEVICE,
    TPU_TRAINING,
    a10g_long,
    a10g_native,
    a10g_short,
    failed,
)

FILE = "tests/test_fp8_training.py"
AT = datetime(2026, 1, 19, tzinfo=UTC)


def found(text, message="", **more):
    signature = signature_of(failed(f"{FILE}::test_a", text, message, **more))
    assert signature is not None
    return signature


@pytest.mark.parametrize("style", [a10g_short, a10g_long, a10g_native])
def test_the_ten_failures_of_the_a10g_are_one(style):
    signatures = {found(style(test, 30 + 7 * i)) for i, test in enumerate(A10G_TESTS)}
    (one,) = signatures
    assert (one.exception, one.frame) == (
        "ValidationError",
        "kernel_pytorch.precision.fp8_training_engine.to_te_recipe",
    )
    assert one.message == "<n> validation error for DelayedScaling scaling_factor_compute_algo"
    assert one.kind is FailureClass.PRODUCT
    assert one.id.startswith(f"s{SIGNATURE_VERSION}-")


def test_the_style_of_the_traceback_makes_no_difference():
    styles = (a10g_short, a10g_long, a10g_native)
    assert len({found(style("test_engine_creation", 51)).id for style in styles}) == 1


def installed(text, folder="../venv/lib/python3.12/site-packages/"):
    """The same traceback where the product was installed from a wheel."""
    return text.replace("kernel_pytorch/", f"{folder}kernel_pytorch/")


@pytest.mark.parametrize("style", [a10g_short, a10g_long, a10g_native])
def test_a_failure_is_the_same_from_source_and_from_a_wheel(style):
    source = style("test_engine_creation", 51)
    wheel = failed(f"{FILE}::test_a", installed(source))
    assert signature_of(wheel, ["kernel_pytorch"]) == found(source)
    for others in ([], ["kernel"], ["kernel_pytorch.other"], ["pydantic_core"]):
        assert signature_of(wheel, others).frame == "tests.test_fp8_training.test_engine_creation"


@pytest.mark.parametrize(
    ("file", "imports", "frame"),
    [
        ("/opt/lib/python3.12/site-packages/ringbuf/__init__.py", ["ringbuf"], "ringbuf.mean"),
        ("/home/test/dist-packages/ringbuf.py", ["ringbuf"], "ringbuf.mean"),
        ("/opt/tests/site-packages/acme/ring/buffer.py", ["acme.ring"], "acme.ring.buffer.mean"),
        ("/opt/site-packages/acme/cell/buffer.py", ["acme.ring"], "tests/test_a.py::test_a"),
        ("/opt/site-packages/ringbuf/tests/helpers.py", ["ringbuf"], "ringbuf.tests.helpers.mean"),
        ("/opt/lib/python3.12/ringbuf.py", ["ringbuf"], "tests/test_a.py::test_a"),
    ],
)
def test_an_installed_file_is_the_products_by_its_import_name(file, imports, frame):
    text = f"tests/test_a.py:3: in test_a\n    f()\n{file}:9: in mean\n    0/0\nE   OddError: no"
    signature = signature_of(failed("tests/test_a.py::test_a", text), imports)
    assert signature.frame == frame
    is_own = frame in ("ringbuf.mean", "acme.ring.buffer.mean")
    assert signature.kind is (FailureClass.PRODUCT if is_own else FailureClass.TEST)


def test_the_two_failures_of_the_tpu_stay_two():
    training, device = found(TPU_TRAINING), found(TPU_DEVICE)
    assert training.id != device.id
    assert str(training) == (
        "AttributeError at tests.test_tpu_backend.test_optimization_config: "
        "'function' object has no attribute 'training'"
    )
    assert (device.exception, device.message) == ("AssertionError", "assert 'xla' == 'cpu'")
    assert (training.kind, device.kind) == (FailureClass.TEST, FailureClass.PRODUCT)


def test_a_test_that_did_not_fail_has_none():
    for outcome in set(TestOutcome) - {TestOutcome.FAILED, TestOutcome.ERROR}:
        assert signature_of(failed("a", TPU_DEVICE, outcome=outcome)) is None


def test_without_a_traceback_the_message_is_the_signature():
    one = found("", "RuntimeError: CUDA out of memory on cuda:0, tried 2.50 GiB")
    other = found("", "RuntimeError: CUDA out of memory on cuda:3, tried 117 MiB")
    assert one.message == "CUDA out of memory on cuda:<n>, tried <n> GiB"
    assert one.exception == other.exception == "RuntimeError"
    assert found("", "").exception == ""
    assert found("", "the interpreter died", reason="crashed").exception == "crashed"


@pytest.mark.parametrize("form", ["def {}(x, y): assert f(x) == y", "async def {}(): assert f()"])
def test_tests_of_one_line_have_signatures_of_their_own(form):
    """A known issue of one must not excuse the others."""
    text = f"x = 1, y = 2\n\n>   {form}\nE   assert 1 == 2\n\ntests/test_a.py:5: AssertionError"
    one, other = (found(text.format(name)) for name in ("test_a", "test_b"))
    assert one.frame == other.frame == f"{FILE}::test_a"
    bare = [failed(f"t/test_a.py::{name}", "", "assert 1 == 2") for name in ("test_a", "test_b")]
    assert [signature_of(one).frame for one in bare] == [
        "t/test_a.py::test_a",
        "t/test_a.py::test_b",
    ]


SHARED = """\
{path}:3: in test_read
    check_equal(read(), 1)
suites/helpers.py:9: in check_equal
    {raises}
E   {said}"""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("tests/unit/test_io.py::test_read", "tests/whole/test_io.py::test_read"),
        ("tests/test_io.py::TestA::test_read[1]", "tests/test_io.py::TestB::test_read[1]"),
        ("tests/test_io.py::test_read", "tests/test_io.py::test_write"),
    ],
)
@pytest.mark.parametrize("imports", [(), ("ringbuf",)])
@pytest.mark.parametrize("said", ["assert 1 == 2", "AssertionError", "Failed: DID NOT RAISE"])
def test_a_failed_expectation_is_of_its_test(one, other, imports, said):
    """Also in a function that many tests share: a known issue of one must not excuse the others."""
    made = [
        signature_of(
            failed(name, SHARED.format(path=name.split("::")[0], raises="x", said=said)), imports
        )
        for name in (one, other)
    ]
    assert made[0].id != made[1].id
    assert made[0].frame == one.partition("[")[0]


@pytest.mark.parametrize("module", ["testing", "_testing/compare", "test_utils", "tests/helpers"])
def test_an_expectation_that_the_product_checks_for_tests_is_of_its_test(module):
    text = "{0}:3: in {1}\n    same()\nsrc/ringbuf/%s.py:9: in same\n    x\nE   AssertionError"
    tests = [
        failed(f"tests/test_a.py::{name}", (text % module).format("tests/test_a.py", name))
        for name in ("test_a", "test_b")
    ]
    frames = [signature_of(one, ["ringbuf"]).frame for one in tests]
    assert frames == ["tests/test_a.py::test_a", "tests/test_a.py::test_b"]


def test_an_assertion_of_the_product_is_one_for_all_tests():
    text = "{0}:3: in {1}\n    f()\nsrc/ringbuf/ring.py:9: in mean\n    x\nE   AssertionError"
    of = ("tests/test_a.py", "test_a"), ("tests/test_b.py", "test_b")
    tests = [failed("::".join(one), text.format(*one)) for one in of]
    assert {signature_of(one, ["ringbuf"]).frame for one in tests} == {"ringbuf.ring.mean"}


@pytest.mark.parametrize(
    ("files", "imports"),
    [
        (("src/coll/core/utils.py", "src/coll/io/utils.py"), ()),
        (("coll/core/utils.py", "coll/io/utils.py"), ("coll",)),
        (("/venv/site-packages/coll/a/utils.py", "/venv/site-packages/coll/utils.py"), ("coll",)),
        (("tests/core/conftest.py", "tests/io/conftest.py"), ()),
        (("/home/me/lib/tests/a/helpers.py", "/home/me/lib/tests/b/helpers.py"), ()),
    ],
)
def test_functions_of_one_name_in_two_packages_are_two(files, imports):
    text = "{}:3: in {}\n    load()\n{}:9: in load\n    x\nE   ValueError: bad file"
    texts = [text.format(f"/home/me/lib/{FILE}", "test_a", file) for file in files]
    one, other = (signature_of(failed(f"{FILE}::test_a", text), imports) for text in texts)
    assert one.id != other.id


@pytest.mark.parametrize("imports", [(), ("coll",)])
def test_a_function_has_one_name_from_source_and_with_absolute_paths(imports):
    text = "{0}tests/test_a.py:3: in test_a\n    load()\n{0}{1}:9: in load\n    x\nE   OddError: no"
    made = [
        signature_of(failed("tests/test_a.py::test_a", text.format(root, file)), imports)
        for root in ("", "/home/me/lib/")
        for file in ("src/coll/io/utils.py", "coll/io/utils.py")
    ]
    assert {one.frame for one in made} == {"coll.io.utils.load"}


def test_an_exception_in_a_test_is_of_its_test():
    text = "{}:3: in test_read\n    x.y\nE   AttributeError: no y"
    made = [
        signature_of(failed(f"{path}::test_read", text.format(path)))
        for path in ("tests/a/test_io.py", "tests/b/test_io.py")
    ]
    assert [one.frame for one in made] == [
        "tests/a/test_io.py::test_read",
        "tests/b/test_io.py::test_read",
    ]


def test_of_a_chain_the_last_exception_counts():
    chained = f"""\
{a10g_short("test_a", 3)}

During handling of the above exception, another exception occurred:
tests/test_fp8_training.py:9: in test_a
    engine.recover()
kernel_pytorch/precision/recovery.py:12: in recover
    raise RuntimeError("cannot recover")
E   RuntimeError: cannot recover"""
    one = found(chained)
    assert (one.exception, one.frame, one.message) == (
        "RuntimeError",
        "kernel_pytorch.precision.recovery.recover",
        "cannot recover (from ValidationError)",
    )


def test_a_plain_assertion_needs_no_name():
    text = "tests/test_a.py:3: in test_a\n    assert f() == 2\nE   assert 1 == 2\nE    +  where"
    one = found(text, "assert 1 == 2")
    assert (one.exception, one.message) == ("AssertionError", "assert <n> == <n>")


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("OSError: [Errno 28] No space left on device", "infra"),
        ("ConnectionError: Connection reset by peer", "infra"),
        ("RuntimeError: The NVIDIA driver on your system is too old (found version 11040)", None),
        ("RuntimeError: CUDA error: no kernel image is available for execution", "environment"),
        ("ModuleNotFoundError: No module named 'transformer_engine'", "environment"),
        ("AssertionError: Tensor-likes are not close!", "product"),
        ("Failed: DID NOT RAISE <class 'ValueError'>", "product"),
        ("something odd", "unknown"),
    ],
)
def test_the_class_is_by_the_first_rule_that_fits(message, kind):
    assert found("", message).kind == (kind or "environment")


def test_a_text_whose_indentation_was_stripped_still_tells_the_function():
    text = (
        "def test_a():\n>       assert 1 == 2\nE       assert 1 == 2\n\ntest_b.py:3: AssertionError"
    )
    assert read_raised(text, "").frame == "test_b.test_a"


def test_what_the_machine_did_is_one_wherever_the_tests_were():
    def disk(test):
        return (
            f"tests/test_a.py:3: in {test}\n    save()\npkg/save.py:9: in {test}_save\n    f()\n"
            f"E   OSError: [Errno 28] No space left on device: '/tmp/pytest-{test}/x/model.pt'"
        )

    assert len({found(disk(f"test_{n}")).id for n in "abc"}) == 1


@pytest.mark.parametrize(
    ("raw", "masked"),
    [
        ("at 0x7ffd12ab", "at <addr>"),
        ("id 123e4567-e89b-12d3-a456-426614174000", "id <uuid>"),
        ("on 2026-01-19T10:11:12.5Z", "on <time>"),
        ("in /home/u/a b", "in <path> b"),
        ("tests/a/test_b.py failed", "<path> failed"),
        ("C:\\Users\\me\\x.py", "<path>"),
        ("see https://x.org/a?b=1 there", "see <url> there"),
        ("commit deadbeef01 done", "commit <hex> done"),
        ("xpu:1 and CPU", "xpu:<n> and CPU"),
        ("shape (2, 3, 4) is -1.5e-3 of 1_000", "shape (<n>) is <n> of <n>"),
        ("128x64 float32 sm_89 A10G", "<n> float32 sm_89 A10G"),
        ("N/A", "N/A"),
        ("first\nsecond", "first"),
    ],
)
def test_what_changes_is_masked(raw, masked):
    assert mask_variable_parts(raw) == masked


@given(st.text(max_size=400))
def test_any_message_can_be_masked_and_masking_is_bounded(text):
    assert len(mask_variable_parts(text)) <= 300
    assert "\n" not in mask_variable_parts(text)


@given(st.text(), st.text(max_size=80), st.sampled_from(["", "crashed", "collection", "setup"]))
def test_any_text_has_a_signature(text, message, reason):
    again = [found(text, message, reason=reason) for _ in range(2)]
    assert again[0] == again[1]


EVIL = ["a" * 200_000, "/a" * 100_000, "1." * 100_000, "E " * 100_000, "-" * 9_000, "-1" * 9_000]
EVIL += ["a0a0a0a0-" * 900, "1 " * 9_000, "a+" * 9_000, "ssh " * 9_000, "a.b/c " * 9_000]


@pytest.mark.parametrize("evil", EVIL, ids=lambda text: text[:4])
def test_a_hostile_text_takes_hardly_longer_than_another(evil):
    begun = time.process_time()
    for _ in range(10):
        found(evil, evil)
        found(f"E   ValueError: {evil}", evil)
        found("\n".join(f"{evil[:500]}:{n}: in x" for n in range(300)))
    assert time.process_time() - begun < 3


def failure(signature, **changes):
    known = {"nodeid": "t", "job": "j", "run_id": "r", "cell": "c", "platform": "p"}
    known |= {"version": "1", "at": AT}
    return Failure(signature, **(known | changes))


def test_failures_are_gathered_the_largest_cluster_first():
    ten = [failure(found(a10g_short(test, 5)), nodeid=test) for test in A10G_TESTS]
    two = [failure(found(TPU_TRAINING), platform="tpu"), failure(found(TPU_DEVICE))]
    made = failure_groups(
        [*two, *ten], {ten[0].signature.id: (datetime(2025, 1, 1, tzinfo=UTC), AT)}
    )
    assert [group.count for group in made] == [10, 1, 1]
    assert made[0].tests == tuple(sorted(A10G_TESTS))
    assert (made[0].first_seen, made[0].last_seen) == (datetime(2025, 1, 1, tzinfo=UTC), AT)
    assert made == failure_groups([*ten, *two], {ten[0].signature.id: (made[0].first_seen, AT)})


def test_signatures_that_may_be_the_same_are_only_suggested():
    words = ("a b c", "a c b", "x y z")
    one, two, three = (make_signature(FailureClass.PRODUCT, "E", "f", w) for w in words)
    other = make_signature(FailureClass.PRODUCT, "F", "f", "a b c")
    near = similar([one, two, three, other], lambda a, b: 100.0 if sorted(a) == sorted(b) else 10.0)
    assert near == {one.id: (two.id,), two.id: (one.id,)}
    assert one.id != two.id


def test_the_pydantic_text_is_what_the_known_issue_looks_for():
    assert "scaling_factor_compute_algo" in PYDANTIC[1]


CHAINS = {
    "long": """
    def launch(name):
>       try: do()
E       {cause}: x

src/widget/core.py:3: {cause}

The above exception was the direct cause of the following exception:

    def test_a():
>       launch("a")

tests/test_a.py:2:
_ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _
    def launch(name):
>       except Exception as e: raise RuntimeError("kernel failed") from e
E       RuntimeError: kernel failed

src/widget/core.py:4: RuntimeError
""",
    "short": """
src/widget/core.py:3: in launch
    try: do()
E   {cause}: x

The above exception was the direct cause of the following exception:
tests/test_a.py:2: in test_a
    launch("a")
src/widget/core.py:4: in launch
    raise RuntimeError("kernel failed") from e
E   RuntimeError: kernel failed
""",
    "native": """Traceback (most recent call last):
  File "src/widget/core.py", line 3, in launch
    try: do()
{cause}: x

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "tests/test_a.py", line 2, in test_a
    launch("a")
  File "src/widget/core.py", line 4, in launch
    raise RuntimeError("kernel failed") from e
RuntimeError: kernel failed
""",
}


def test_the_cause_of_an_exception_is_part_of_its_signature():
    texts = [
        [text.format(cause=cause) for text in CHAINS.values()]
        for cause in ("ZeroDivisionError", "KeyError")
    ]
    old, new = ({found(text).id for text in some} for some in texts)
    assert len(old) == len(new) == 1
    assert old != new
    signature = found(texts[0][0])
    assert signature.frame == "widget.core.launch"
    assert signature.message == "kernel failed (from ZeroDivisionError)"


LAMBDAS = (
    """
    def test_a():
>       la()

tests/test_a.py:2:
_ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _

>   la = lambda: 1/0
E   ZeroDivisionError: division by zero

src/widget/core.py:20: ZeroDivisionError
""",
    """tests/test_a.py:2: in test_a
    la()
src/widget/core.py:20: in <lambda>
    la = lambda: 1/0
E   ZeroDivisionError: division by zero
""",
)


@pytest.mark.parametrize("text", LAMBDAS)
def test_a_failure_in_a_lambda_is_its_tests_own(text):
    signatures = [
        signature_of(failed(f"tests/test_a.py::{name}", text), ["widget"])
        for name in ("test_a", "test_b")
    ]
    assert [one.frame for one in signatures] == [
        "tests/test_a.py::test_a",
        "tests/test_a.py::test_b",
    ]
    assert read_raised(text, "", imports=["widget"]).frame == "widget.core.<lambda>"
