"""The config file and the log: never half-written, never lost, never in the way.

Contract, files.
"""
from __future__ import annotations

import os
import stat
import tomllib
from pathlib import Path

import pytest
import tam

from processes import answers, files, python, together, without_rights
from support import run


OPENED: list[tam.Tam] = []


def opened(**options: object) -> tam.Tam:
    """A Tam of its own, as in another process; the test's end closes it."""
    OPENED.append(tam.Tam(env=dict(os.environ), **options))
    return OPENED[-1]


@pytest.fixture(autouse=True)
def closed() -> None:
    """Close what a test has opened."""
    yield
    while OPENED:
        OPENED.pop().close()


def load(home: Path) -> dict:
    return tomllib.loads((home / tam.CONFIG_NAME).read_text("utf-8"))


def write(home: Path, text: str) -> Path:
    home.mkdir(exist_ok=True)
    path = home / tam.CONFIG_NAME
    path.write_text(text, "utf-8")
    return path


def use_projects(*names: str) -> None:
    for name in names:
        assert run("project", "add", name).code == 0


# -- reading --


def test_the_first_use_writes_the_defaults(scratch_home: Path) -> None:
    assert run("project", "list").code == 0
    assert load(scratch_home) == {
        "db_file": str(scratch_home / "tam.db3"),
        "logfile_path": str(scratch_home / "logs" / "tam.log"),
        "logfile_pattern": str(scratch_home / "logs" / "tam.{}.log"),
        "theme": "dark",
    }
    shown = run("config", "--json").data
    assert shown["current_project"] is None
    assert shown["config_file"] == str(scratch_home / tam.CONFIG_NAME)


def test_a_missing_or_empty_key_has_its_default(scratch_home: Path) -> None:
    write(scratch_home, 'theme = "light"\ncurrent_project = ""\ndb_file = ""\n')
    settings = opened().config
    assert settings["theme"] == "light"
    assert settings["current_project"] is None
    assert settings["db_file"] == str(scratch_home / "tam.db3")


@pytest.mark.parametrize("text", [
    "theme = 'light' # single quotes\n", 'theme="light"\r\n', 'theme = """light"""\n',
    '"theme" = "light"\n[other]\ntheme = "dark"\n', 'theme = "\\u006Cight"\n',
    '# theme = "dark"\n\n\t theme =  "light"  # so be it\n',
])
def test_every_way_of_toml_to_write_a_value_is_read(scratch_home: Path, text: str) -> None:
    path = scratch_home / tam.CONFIG_NAME
    scratch_home.mkdir()
    path.write_bytes(text.encode())
    assert opened().config["theme"] == "light"


@pytest.mark.parametrize("content", [
    b"theme = dark\n", b'theme = "dark\n', b"\xff\xfe", b'theme = "a"\ntheme = "b"\n',
    b"theme = 3\n", b"current_project = [1]\n", b"[db_file]\n", b"\x00",
])
@pytest.mark.parametrize("words", [("task", "list"), ("project", "add", "p"), ("config",)])
def test_a_config_that_cannot_be_used_is_a_startup_failure(
    scratch_home: Path, content: bytes, words: tuple
) -> None:
    path = write(scratch_home, "")
    path.write_bytes(content)
    ended = run(*words, "--json")
    assert ended.code == 1
    assert ended.json["command"] == "startup"
    assert ended.error["code"] == "internal"
    assert ended.error["details"]["config_file"] == str(path)
    assert path.read_bytes() == content
    assert list(scratch_home.iterdir()) == [path]
    said = run(*words)
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("ERROR ") and str(path) in said.err


def test_a_name_that_no_file_can_have_is_a_startup_failure(scratch_home: Path) -> None:
    path = write(scratch_home, 'db_file = "a\\u0000b"\nlogfile_path = "\\u0000"\n')
    ended = run("task", "list", "--json")
    assert (ended.code, ended.json["command"]) == (1, "startup")
    assert ended.error["details"] == {"config_file": str(path), "key": "db_file"}
    assert list(scratch_home.iterdir()) == [path]


def test_a_directory_in_the_place_of_the_config(scratch_home: Path) -> None:
    (scratch_home / tam.CONFIG_NAME).mkdir(parents=True)
    ended = run("task", "list", "--json")
    assert (ended.code, ended.json["command"]) == (1, "startup")


def test_a_change_by_another_process_is_seen(scratch_home: Path) -> None:
    tam_ = opened()
    assert tam_.config["theme"] == "dark"
    opened().set_config(theme="light")
    assert tam_.config["theme"] == "light"


def test_a_change_while_the_file_is_read_is_seen_later(
    scratch_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(scratch_home, 'current_project = "a"\n')
    tam_ = opened()
    read = tam.Home._read

    def slow(home: tam.Home, create: bool) -> str:
        text = read(home, create)
        write(scratch_home, 'current_project = "changed"\n')
        return text

    with monkeypatch.context() as patch:
        patch.setattr(tam.Home, "_read", slow)
        assert tam_.config["current_project"] == "a"
    assert tam_.config["current_project"] == "changed"


def test_a_home_that_cannot_be_written_works_with_the_defaults(public: Path) -> None:
    home = public / "never"
    public.chmod(0o555)
    shown, listed = without_rights(("config",), ("project", "list"), TAM_HOME=str(home))
    assert shown.data["db_file"] == str(home / "tam.db3")
    assert listed.data == []
    [refused] = without_rights(("project", "add", "p"), TAM_HOME=str(home))
    assert (refused.code, refused.error["code"]) == (1, "internal")
    assert list(public.iterdir()) == []


# -- writing --


def test_a_change_keeps_comments_unknown_keys_and_order(scratch_home: Path) -> None:
    text = (
        "# mine\nfuture = [1, 2]\n\ntheme = \"dark\"  # at night\nlogfile_pattern = 'x.{}.log'\n"
        "[plugin]\ntheme = \"mine\"\ncurrent_project = 7\n"
    )
    write(scratch_home, text)
    tam_ = opened()
    tam_.set_config(theme="light", current_project="网站")
    changed = (scratch_home / tam.CONFIG_NAME).read_text("utf-8")
    assert load(scratch_home) == {
        "future": [1, 2], "theme": "light", "logfile_pattern": "x.{}.log",
        "current_project": "网站", "plugin": {"theme": "mine", "current_project": 7},
    }
    for line in ("# mine", "future = [1, 2]", 'theme = "light"  # at night',
                 "logfile_pattern = 'x.{}.log'", "[plugin]"):
        assert line in changed.splitlines()
    tam_.set_config(current_project=None)
    assert "current_project" not in load(scratch_home)


@pytest.mark.parametrize("value", [
    'a "quoted" one', "back\\slash", "tab\tand\x7fdel", "é 网站 🚀", "#no comment", "''' \"\"\"",
])
def test_any_value_is_read_back_as_it_was_saved(scratch_home: Path, value: str) -> None:
    opened().set_config(current_project=value)
    assert opened().config["current_project"] == load(scratch_home)["current_project"] == value


@pytest.mark.parametrize("text", [
    'note = """\ntheme = "dark"\n"""\ntheme = "dark"\n',
    'list = [\n[1]\n]\ntheme = "dark"\n', 'theme = """\ndark"""\n',
])
def test_what_cannot_be_edited_safely_is_left_alone(scratch_home: Path, text: str) -> None:
    path = write(scratch_home, text)
    before = path.read_bytes()
    with pytest.raises(tam.Internal, match="by hand"):
        opened().set_config(theme="light")
    assert path.read_bytes() == before


def test_a_change_replaces_the_file_at_once(scratch_home: Path) -> None:
    opened().set_config(theme="light")
    path = scratch_home / tam.CONFIG_NAME
    held = path.open()  # a reader keeps the whole old file while the new one comes in
    old = path.read_text()
    opened().set_config(theme="dark")
    assert held.read() == old
    held.close()
    assert load(scratch_home)["theme"] == "dark"
    assert {name for name in files(scratch_home) if "tmp" in name} == set()


def test_a_change_that_fails_leaves_the_old_file(
    scratch_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened().set_config(theme="light")
    before = files(scratch_home)

    def refuse(*args: object) -> None:
        raise OSError(28, "No space left on device")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, refuse)
            with pytest.raises(tam.Internal, match="No space left"):
                opened().set_config(theme="dark")
        assert files(scratch_home) == before


def test_nothing_to_change_writes_nothing(scratch_home: Path) -> None:
    opened().set_config(theme="light")
    before = os.stat(scratch_home / tam.CONFIG_NAME)
    opened().set_config(theme="light")
    assert os.stat(scratch_home / tam.CONFIG_NAME)[:9] == before[:9]


def test_a_symbolic_link_stays_one(scratch_home: Path, tmp_path: Path) -> None:
    scratch_home.mkdir()
    target = tmp_path / "dotfiles.toml"
    target.write_text("# in a repository\n")
    (scratch_home / tam.CONFIG_NAME).symlink_to(target)
    opened().set_config(theme="light")
    assert (scratch_home / tam.CONFIG_NAME).is_symlink()
    assert target.read_text() == 'theme = "light"\n# in a repository\n'


def test_a_device_or_a_pipe_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)
    for path in (pipe, tmp_path / "link"):
        with pytest.raises(OSError, match="no ordinary file"):
            tam.replace_file(str(path), b"x")
    assert stat.S_ISFIFO(pipe.stat().st_mode) and len(list(tmp_path.iterdir())) == 3


def test_permissions_are_private_at_first_and_then_the_owners_choice(scratch_home: Path) -> None:
    mask = os.umask(0)
    try:
        opened().set_config(theme="light")
        path = scratch_home / tam.CONFIG_NAME
        assert stat.S_IMODE(scratch_home.stat().st_mode) == 0o700
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        path.chmod(0o644)
        scratch_home.chmod(0o755)
        opened().set_config(theme="dark")
        assert stat.S_IMODE(scratch_home.stat().st_mode) == 0o755
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
    finally:
        os.umask(mask)


def test_the_current_project_follows_renames_and_deletions(scratch_home: Path) -> None:
    use_projects("p", "q")
    assert run("project", "use", "p").code == 0
    assert run("project", "edit", "q", "r").code == 0
    assert load(scratch_home)["current_project"] == "p"
    assert run("project", "edit", "p", "new").code == 0
    assert load(scratch_home)["current_project"] == "new"
    assert run("project", "del", "r").code == 0
    assert load(scratch_home)["current_project"] == "new"
    assert run("project", "del", "new").code == 0
    assert "current_project" not in load(scratch_home)
    before = (scratch_home / tam.CONFIG_NAME).read_bytes()
    opened().set_config(current_project=None)
    assert (scratch_home / tam.CONFIG_NAME).read_bytes() == before


def test_using_a_project_that_does_not_exist_changes_nothing(scratch_home: Path) -> None:
    use_projects("p")
    before = (scratch_home / tam.CONFIG_NAME).read_bytes()
    assert run("project", "use", "x", "--json").error["details"] == {"project": "x"}
    assert (scratch_home / tam.CONFIG_NAME).read_bytes() == before


@pytest.mark.parametrize("name, arguments", [
    ("project.del", {"name": "p"}), ("project.edit", {"name": "p", "new_name": "q"}),
])
def test_a_project_does_not_vanish_while_it_becomes_the_current_one(
    scratch_home: Path, monkeypatch: pytest.MonkeyPatch, name: str, arguments: dict
) -> None:
    use_projects("p")
    save = tam.Home.save

    def save_late(home: tam.Home, **changes: str) -> None:
        other = opened(busy_timeout=0.05)
        with pytest.raises(tam.Busy):
            other.call(name, arguments)
        other.close()
        save(home, **changes)

    with monkeypatch.context() as patch:
        patch.setattr(tam.Home, "save", save_late)
        assert run("project", "use", "p").code == 0
    opened().call(name, arguments)
    assert load(scratch_home).get("current_project") == arguments.get("new_name")


def test_a_project_whose_config_cannot_be_saved_is_not_deleted_either(
    scratch_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_projects("p")
    run("project", "use", "p")

    def refuse(*args: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        assert run("project", "del", "p", "--json").error["code"] == "internal"
    assert [view["name"] for view in run("project", "list", "--json").data] == ["p"]
    assert load(scratch_home)["current_project"] == "p"


def test_processes_that_change_the_config_at_once_lose_nothing(scratch_home: Path) -> None:
    names = [f"project-{number}" for number in range(4)]
    use_projects(*names)
    path = scratch_home / tam.CONFIG_NAME
    path.write_text("# mine\n" + path.read_text())
    code = """
go()
tam_ = tam.Tam()
for number in range(25):
    tam_.call("project.use", {"name": sys.argv[1]})
    answer(tam_.config["current_project"])
    tam_.set_config(**{f"key_{sys.argv[1][-1]}": str(number)})
tam_.close()
"""
    ended = together([python(code, name) for name in names])
    assert {name for one in ended for name in answers(one)} <= set(names)
    settings = load(scratch_home)
    assert settings.pop("current_project") in names
    assert {settings.pop(f"key_{number}") for number in range(4)} == {"24"}
    assert settings.keys() == {"db_file", "logfile_path", "logfile_pattern", "theme"}
    assert "# mine" in path.read_text().splitlines()
    assert not list(scratch_home.glob("*.tmp"))


# -- the log --


def logs(home: Path) -> dict[str, str]:
    return {path.name: path.read_text("utf-8") for path in sorted((home / "logs").iterdir())}


def test_the_log_rolls_at_its_limit_and_keeps_five_old_files(scratch_home: Path) -> None:
    home = opened().home
    for number in range(40):
        home.log(f"record {number:02} " + "x" * 60, limit=300)
    found = logs(scratch_home)
    assert list(found) == [*(f"tam.{number}.log" for number in range(1, 6)), "tam.log"]
    assert all(len(text) <= 300 for text in found.values())
    oldest_first = [found[f"tam.{number}.log"] for number in range(5, 0, -1)] + [found["tam.log"]]
    kept = [line.split("record ")[1][:2] for line in "".join(oldest_first).splitlines()]
    assert kept == [f"{number:02}" for number in range(40 - len(kept), 40)]


def test_a_pattern_without_a_place_for_the_number_gets_it_at_the_end(scratch_home: Path) -> None:
    write(scratch_home, f"logfile_pattern = '{scratch_home}/logs/old.log'\n")
    home = opened().home
    for number in range(3):
        home.log(f"record {number}", limit=60)
    assert list(logs(scratch_home)) == ["tam.log", "tam.log.1", "tam.log.2"]


def test_the_limits_are_those_of_1_0_13() -> None:
    assert (tam.LOG_BYTES, tam.LOG_FILES) == (10 * 1024 * 1024, 5)


def test_a_record_has_a_time_and_a_process_and_is_private(scratch_home: Path) -> None:
    mask = os.umask(0)
    try:
        opened().log("hello 网站 \udcff")
    finally:
        os.umask(mask)
    [text] = logs(scratch_home).values()
    assert f"[{os.getpid()}] hello 网站 \ufffd" in text
    assert stat.S_IMODE((scratch_home / "logs" / "tam.log").stat().st_mode) == 0o600
    assert stat.S_IMODE((scratch_home / "logs").stat().st_mode) == 0o700


@pytest.mark.parametrize("setting", [
    "/dev/full", "/proc/no/such/place.log", "/", "nul\\u0000byte.log",
])
def test_a_log_that_cannot_be_written_stops_nothing(
    scratch_home: Path, capfd: pytest.CaptureFixture, setting: str
) -> None:
    write(scratch_home, f'logfile_path = "{setting}"\n')
    opened().log("a record")
    assert capfd.readouterr() == ("", "")
    use_projects("p")
    assert run("project", "list", "--json").code == 0


def test_a_corrupt_config_leaves_no_log_and_raises_nothing(scratch_home: Path) -> None:
    write(scratch_home, "theme = \n")
    opened().log("a record")
    assert not (scratch_home / "logs").exists()


def test_without_a_home_there_is_no_log_and_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = files(tmp_path)
    tam.Tam(env={"HOME": "relative"}).log("a record")
    assert files(tmp_path) == before


def test_an_unexpected_error_goes_into_the_log_and_not_to_the_user(
    scratch_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_projects("p")

    def broken(work: object, args: dict) -> None:
        raise ZeroDivisionError("a bug of ours")

    monkeypatch.setattr(tam.OPERATIONS["project.list"], "run", broken)
    ended = run("project", "list", "--json")
    assert (ended.code, ended.error["code"]) == (1, "internal")
    assert "Traceback" not in ended.err and "Traceback" not in run("project", "list").err
    assert "a bug of ours" in ended.error["message"]
    assert "Traceback" in logs(scratch_home)["tam.log"]
