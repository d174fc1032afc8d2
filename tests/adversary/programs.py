"""Demos and benchmarks whose own words are false, or are not listened to."""

from __future__ import annotations

from tests.adversary.lie import Lie, demo, one_run
from tests.adversary.scene import GOOD, SUITE

_EVENTS = (
    "import json, os\ndef say(**event):\n"
    "    with open(os.environ['SEATRIAL_EVENTS'], 'a') as out:\n"
    "        out.write(json.dumps(event) + '\\n')\n"
)
_FIGURES = '[{"name": "speed", "unit": "ms", "value": 5}]'


def _says(name: str, code: str, *, inherent: str = "") -> Lie:
    """A demo alone, that has the subject at least: it would not count without."""
    return Lie(name, one_run({}, jobs=demo("demo", f"import mylib\n{code}")), inherent=inherent)


_CHECK = "def check(n=2): assert mylib.double(n) == 2 * n\n"
_EXECUTOR = "from concurrent.futures import {} as Executor\nwith Executor(2) as pool: pool.{}"
_NOBODY_ASKS = {
    "submit": _EXECUTOR.format("ThreadPoolExecutor", "submit(check)"),
    "map": _EXECUTOR.format("ThreadPoolExecutor", "map(check, (1, 2))"),
    "a process": _EXECUTOR.format("ProcessPoolExecutor", "submit(check)"),
    "apply_async": "from multiprocessing import Pool\nwith Pool(2) as pool:\n"
    "    pool.apply_async(check)\n    pool.close()\n    pool.join()",
    "create_task": "import asyncio\nasync def wait(): check()\nasync def main():\n"
    "    asyncio.create_task(wait())\n    await asyncio.sleep(0)\nasyncio.run(main())",
}
"""By what takes the failing check: a demo that does not ask how it ended."""

LIES = (
    *(
        _says(f"a demo does not ask how its check ended: {taker}", f"{_CHECK}{code}\nprint('done')")
        for taker, code in _NOBODY_ASKS.items()
    ),
    _says("a demo prints [FAIL] and ends well", "print('[PASS] a')\nprint('[FAIL] double')"),
    _says("a demo's sum says that none passed", "print('Results: 0/8 demos passed')"),
    _says("a demo's sum says that some failed", "print('Passed: 3, Failed: 2')"),
    _says(
        "a demo runs pytest and ignores its status",
        "import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'pytest', 't'])",
    ),
    _says(
        "a demo runs unittest and ignores its status",
        "import subprocess, sys\nprint('Ran 3 tests in 0.1s\\n\\nFAILED (failures=1)')",
    ),
    _says(
        "a demo prints FAILED with the name of a test",
        "print('FAILED t/test_double.py::test_double - assert 5 == 4')",
    ),
    _says(
        "a demo prints a traceback and ends well",
        "import traceback, mylib\ntry:\n    assert mylib.double(2) == 4\n"
        "except Exception: traceback.print_exc()",
    ),
    _says(
        "a demo prints a traceback and goes on",
        "import traceback, mylib\ntry:\n    assert mylib.double(2) == 4\n"
        "except Exception: traceback.print_exc()\nprint('done', flush=True)",
        inherent="words",
    ),
    _says(
        "a demo's assertion fails in a thread",
        "import threading, mylib\ndef check(): assert mylib.double(2) == 4\n"
        "thread = threading.Thread(target=check)\nthread.start()\nthread.join()\nprint('done')",
    ),
    _says(
        "a demo's assertion fails in a child process",
        "import multiprocessing, mylib\ndef check(): assert mylib.double(2) == 4\n"
        "child = multiprocessing.get_context('fork').Process(target=check)\n"
        "child.start()\nchild.join()\nprint('done')",
    ),
    Lie(
        "a demo whose status is that of tee",
        one_run(
            {"d.py": "import mylib\nassert mylib.double(2) == 4\n"},
            jobs='[[job]]\nid = "demo"\nkind = "demo"\n'
            'command = ["sh", "-c", "$0 d.py 2>&1 | tee log.txt", "{python}"]\n',
        ),
    ),
    Lie(
        "a demo whose check ends after it, in a session of its own",
        one_run(
            {"check.py": "import mylib\nassert mylib.double(2) == 4\n"},
            jobs=demo(
                "demo",
                "import subprocess, sys, mylib\n"
                "subprocess.Popen(['sh', '-c', 'sleep 1; exec \"$0\" check.py',"
                " sys.executable], start_new_session=True,"
                " stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\nprint('done')",
            ),
        ),
    ),
    Lie(
        "a demo that leaves its work behind and ends",
        one_run(
            {"d.py": "import time, mylib\ntime.sleep(60)\nassert mylib.double(2) == 4\n"},
            jobs='[[job]]\nid = "demo"\nkind = "demo"\n'
            'command = ["sh", "-c", "$0 d.py &", "{python}"]\n',
        ),
    ),
    Lie(
        "a mended copy of the subject beside a demo",
        one_run(
            {"demos/mylib.py": GOOD, "demos/d.py": "import mylib\nassert mylib.double(2) == 4\n"},
            jobs='[[job]]\nid = "demo"\nkind = "demo"\ncommand = ["{python}", "demos/d.py"]\n',
        ),
    ),
    Lie(
        "a benchmark that puts the source first on its path",
        one_run(
            {"src/mylib.py": GOOD},
            jobs=demo(
                "bench",
                "import sys\nsys.path.insert(0, 'src')\nimport mylib\nassert mylib.double(2) == 4",
                "benchmark",
            ),
        ),
    ),
    Lie(
        "a suite that tests a program in a folder with the mended source",
        one_run(
            {
                "src/mylib.py": GOOD,
                "t/test_double.py": "import pathlib, subprocess, sys, mylib\n"
                "SRC = pathlib.Path(__file__).parent.parent / 'src'\n"
                "ASK = 'import mylib; assert mylib.double(2) == 4'\n"
                "def test_double():\n"
                "    subprocess.run([sys.executable, '-c', ASK], cwd=SRC, check=True)\n",
            }
        ),
    ),
    Lie(
        "a configuration beside the tests that the failing ones need",
        one_run(
            {
                "t/pytest.ini": "[pytest]\nxfail_strict = true\n",
                "t/test_double.py": "import mylib, pytest\n"
                "@pytest.mark.xfail(reason='double is wrong')\n"
                "def test_double(): assert mylib.double(2) != 4\n",
            }
        ),
    ),
    _says("a demo prints the result of a CUDA sample", "print('Result = FAIL')"),
    _says(
        "a demo runs its own examples and ignores how many failed",
        "print('***Test Failed*** 1 failures.')",
    ),
    *(
        _says(f"a demo whose number of failures is 256: {how}", f"import os, sys\n{how}")
        for how in ("sys.exit(256)", "os._exit(256)")
    ),
    *(
        Lie(
            f"a demo without its assertions: {how}",
            one_run(
                {"d.py": "import mylib\nassert mylib.double(2) == 4\nprint('done')\n"},
                jobs='[[job]]\nid = "demo"\nkind = "demo"\n'
                f'command = ["{{python}}"{word}, "d.py"]\n{env}',
            ),
        )
        for how, word, env in (
            ("python -O", ', "-O"', ""),
            ("PYTHONOPTIMIZE", "", 'env = {PYTHONOPTIMIZE = "1"}\n'),
        )
    ),
    _says(
        "a demo drops the result of pytest.main, which says nothing",
        "import pytest\npytest.main(['t', '-p', 'no:terminal'])\nprint('done')",
    ),
    *(
        _says(f"a demo whose output is {what}", f"print({said!r})")
        for what, said in (
            (
                "that of tox",
                "  py311: FAIL code 1 (0.1 seconds)",
            ),
            ("that of nox", "nox > Session tests failed."),
            ("a sum of meson", "Ok:                 2\nFail:               1"),
            ("that of Boost", '*** 1 failure is detected in the test module "double"'),
            ("a plan of TAP with a result too few", "1..2\nok 1 - triple"),
            ("that of a shell that lost a process", "Segmentation fault (core dumped)"),
            ("a share that failed", "1 of 3 tests failed"),
            ("a long line", f"[FAIL] {'double ' * 200}"),
            ("that of unittest without a test", "Ran 0 tests in 0.000s\n\nNO TESTS RAN"),
            ("that of pytest with skips alone", "2 skipped in 0.02s"),
            ("a plan of TAP without a test", "1..0 # SKIP no GPU"),
            ("a False", "all checks passed: False"),
        )
    ),
    _says(
        "a demo's last check is at its exit, after its exit code",
        "import atexit\n@atexit.register\ndef check(): assert mylib.double(2) == 4\n"
        "print('done', flush=True)",
    ),
    Lie(
        "a demo starts its check as a program and ignores its status",
        one_run(
            {"check.py": "import mylib\nassert mylib.double(2) == 4\n"},
            jobs=demo(
                "demo",
                "import subprocess, sys, mylib\n"
                "subprocess.run([sys.executable, 'check.py'])\nprint('all stages done')",
            ),
        ),
    ),
    _says(
        "a check whose outcome is there twice",
        f"{_EVENTS}with open(os.environ['SEATRIAL_EVENTS'], 'a') as out:\n"
        '    out.write(\'{"check": "double", "outcome": "failed", "outcome": "passed"}\\n\')',
    ),
    _says("a failed check and status 0", f"{_EVENTS}say(check='double', outcome='failed')"),
    _says(
        "a check that passes outside its tolerance",
        f"{_EVENTS}say(check='double', outcome='passed', value=5.0, expected=4.0, tolerance=0.1)",
    ),
    *(
        _says(
            f"a check with a tolerance that passes, and its value is {what}",
            f"{_EVENTS}say(check='double', outcome='passed', expected=4, tolerance='0.1', {value})",
        )
        for what, value in {
            "a text": "value='5'",
            "null": "value=None",
            "false": "value=False",
            "a word": "value='about 4'",
        }.items()
    ),
    _says("checks that are all skipped", f"{_EVENTS}say(check='double', outcome='skipped')"),
    _says(
        "a check whose outcome is no word of ours",
        f"{_EVENTS}say(check='double', outcome='PASSED!')",
    ),
    _says(
        "the same check failed and passed",
        f"{_EVENTS}say(check='d', outcome='failed')\nsay(check='d', outcome='passed')",
    ),
    _says(
        "a failed check whose file is opened anew",
        "import os, mylib\nfor word in ('failed', 'passed'):\n"
        "    with open(os.environ['SEATRIAL_EVENTS'], 'w') as out:\n"
        '        print(\'{"check": "d", "outcome": "\' + word + \'"}\', file=out)',
    ),
    *(
        _says(
            f"a check that passes, and its value is {what}",
            f"{_EVENTS}say(check='double', outcome='passed', expected=4, value={value})",
        )
        for what, value in {"nan as a text": "'nan'", "null, without a tolerance": "None"}.items()
    ),
    _says(
        "a failed check whose file is deleted and written again",
        f"{_EVENTS}say(check='d', outcome='failed')\nos.remove(os.environ['SEATRIAL_EVENTS'])\n"
        "say(check='d', outcome='passed')",
    ),
    _says(
        "[FAIL] in the middle of more output than is kept",
        "line = '.' * 99\nfor n in range(1_600_000): print('[FAIL] a' if n == 800_000 else line)",
    ),
    _says("a sum with thousands", "print('1,234/1,235 tests passed')"),
    _says("a sum in Markdown", "print('**Results:** 7/8 tests passed')"),
    _says(
        "a metric that is no number",
        f"{_EVENTS}say(metric='speed', samples=[float('nan')], unit='s', direction='lower')",
    ),
    _says(
        "a metric without samples",
        f"{_EVENTS}say(metric='speed', samples=[], unit='s', direction='lower')",
    ),
    Lie(
        "figures of a file that is shipped",
        one_run(
            {"o.json": _FIGURES}, jobs=demo("hello", "import mylib") + 'metrics = ["o.json"]\n'
        ),
    ),
    Lie(
        "figures of a file that an earlier job wrote",
        one_run(
            {},
            jobs=demo("first", f"open('o.json', 'w').write({_FIGURES!r})")
            + 'metrics = ["o.json"]\n'
            + demo("second", "import mylib")
            + 'metrics = ["o.json"]\n',
        ),
    ),
    _says("degraded, told by the demo", f"{_EVENTS}say(degraded='no GPU: it ran on the CPU')"),
    _says(
        "a demo that leaves the work to a child which fails",
        "import subprocess, sys\nprint('Results: 8/8 demos passed')\nprint('[FAIL] double')",
    ),
    *(
        Lie(
            f"a demo whose pytest leaves the checks out: {how}",
            one_run(
                {},
                jobs='[[job]]\nid = "demo"\nkind = "demo"\n'
                f'command = ["{{python}}", "-m", "pytest", "-q", "t"{word}]\n{env}',
            ),
        )
        for how, word, env in (
            *((word, f', "{word}"', "") for word in ("--collect-only", "--setup-plan")),
            ("PYTEST_ADDOPTS", "", 'env = {PYTEST_ADDOPTS = "--setup-only"}\n'),
        )
    ),
    Lie(
        "a demo whose pytest writes its expectations",
        one_run(
            {
                "t/test_double.py": "import mylib, os\n\ndef test_double():\n"
                "    assert 'UPDATE_GOLDENS' in os.environ or mylib.double(2) == 4\n"
            },
            jobs=demo("demo", "import sys, pytest\nsys.exit(pytest.main(['-q', 't']))")
            + 'env = {UPDATE_GOLDENS = "1"}\n',
        ),
    ),
    Lie(
        "a suite that is called a demo",
        one_run(
            {}, jobs=demo("suite", "import pytest, sys\npytest.main(['-q', 't'])\nsys.exit(0)")
        ),
    ),
    Lie(
        "a demo that does nothing beside an honest suite that fails",
        one_run({}, jobs=SUITE + demo("demo", "pass")),
    ),
    _says("a demo that says it passed", "print('[PASS] double')", inherent="words"),
)
