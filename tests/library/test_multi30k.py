"""Two files become pairs or say what is wrong, and Multi30k is found, fetched, checked, and never half there."""

import gzip
import hashlib
import importlib
import os
import socket
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from attncourse.data import Pair, multi30k, read_parallel
from attncourse.data.multi30k import NoData
from attncourse.data.parallel import BadData
from commandkit.errors import CommandError

module = importlib.import_module("attncourse.data.multi30k")  # `attncourse.data.multi30k` is the function

# Two files that go line by line


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        raw = content if isinstance(content, bytes) else content.encode()
        (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") and content != b"cut" else raw)
        return tmp_path / name

    return write


@pytest.mark.parametrize("ending", ["txt", "txt.gz"])
def test_line_by_line_two_files_become_pairs(write, ending):
    german, english = write(f"de.{ending}", "Zwei Männer.\n Ein Hund \n"), write(f"en.{ending}", "Two men.\nA dog")
    assert read_parallel(german, str(english)) == [Pair("Zwei Männer.", "Two men."), Pair("Ein Hund", "A dog")]


def test_only_a_newline_ends_a_line(write):
    first = "a\u2028b\x85c\rd"
    assert read_parallel(write("de", f"{first}\ne\n"), write("en", "f\r\ng\r\n")) == [Pair(first, "f"), Pair("e", "g")]


def test_a_mark_of_byte_order_is_no_text(write):
    assert read_parallel(write("de", "\ufeffa\n"), write("en", "b\n")) == [Pair("a", "b")]


def test_lines_empty_on_both_sides_give_no_pair_and_shift_none(write):
    assert read_parallel(write("de", "a\n\nb\n"), write("en", "c\n \nd\n")) == [Pair("a", "c"), Pair("b", "d")]


def test_files_of_unequal_length_are_refused_with_both_lengths(write):
    with pytest.raises(BadData, match=r"de has 3 lines and .*en has 2: each line must have its translation"):
        read_parallel(write("de", "a\nb\nc\n"), write("en", "a\nb\n"))
    with pytest.raises(BadData, match=r"de has 0 lines and .*en has 1"):
        read_parallel(write("de", ""), write("en", "a\n"))


def test_a_line_without_a_translation_is_named_with_its_file(write):
    with pytest.raises(BadData, match=r"en, line 2: empty, and .*de has text there"):
        read_parallel(write("de", "a\nb\n"), write("en", "c\n\n"))
    with pytest.raises(BadData, match=r"de, line 1: empty, and .*en has text there"):
        read_parallel(write("de", "\t\nb\n"), write("en", "c\nd\n"))


def test_what_is_not_utf_8_is_named_with_its_line_and_byte(write):
    with pytest.raises(BadData, match=r"de, line 2: not UTF-8 \(byte 0xe4 at 2\); save the file as UTF-8"):
        read_parallel(write("de", "Hund\nMänner\n".encode("latin-1")), write("en", "dog\nmen\n"))


@pytest.mark.parametrize("broken", [b"cut", gzip.compress(b"a\n" * 99)[:-5]], ids=["not gzip", "cut short"])
def test_a_broken_gzip_file_is_named(write, tmp_path, broken):
    (tmp_path / "de.gz").write_bytes(broken)
    with pytest.raises(BadData, match=r"de\.gz: not a whole gzip file"):
        read_parallel(tmp_path / "de.gz", write("en", "a\n"))


# Multi30k, in small and from a server on this machine

FILES = {
    f"{split}.{language}.gz": gzip.compress("".join(f"{split} {language} {n}\n" for n in range(size)).encode(), mtime=0)
    for split, size in (("train", 300), ("val", 3), ("test_2016_flickr", 2))
    for language in ("de", "en")
}
TRAIN = FILES["train.de.gz"]


class Handler(BaseHTTPRequestHandler):
    """Serves FILES. `plan` says what to do otherwise at the next requests for a file."""

    def __init__(self, run_config, asked, *args):
        self.run_config, self.asked = run_config, asked
        super().__init__(*args)

    def do_GET(self):
        name = self.path.rpartition("/")[2]
        asked = self.headers["Range"]
        self.asked.append((name, asked))
        trick = self.run_config[name].pop(0) if self.run_config.get(name) else "serve"
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and trick != "ignore the range" else 0
        body = {"wrong": b"x" * len(FILES[name])}.get(trick, FILES[name])
        if trick in ("404", "503") or start >= len(body):
            return self.send_error(int(trick) if trick.isdigit() else 416)
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        self.wfile.write(body[start : start + 40] if trick == "cut" else body[start:])

    def log_message(self, *args):
        pass


@pytest.fixture
def run_config():
    return {}


@pytest.fixture
def asked():
    return []


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The cache's folder, and nothing of this machine's data."""
    monkeypatch.delenv("ATTNCOURSE_DATA", raising=False)
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(module, "_cache", lambda: tmp_path / "cache" / "multi30k")
    monkeypatch.setattr(module, "SHA256", {name: hashlib.sha256(raw).hexdigest() for name, raw in FILES.items()})
    monkeypatch.setattr(module, "PAUSE", 0.0)
    return tmp_path / "cache" / "multi30k"


@pytest.fixture
def server(cache, monkeypatch, run_config, asked):
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, run_config, asked))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setattr(module, "URL", f"http://127.0.0.1:{server.server_port}")
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def offline(cache, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setattr(module, "URL", f"http://127.0.0.1:{port}")


def put(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name, raw in FILES.items():
        (folder / name).write_bytes(raw)


def parts(cache):
    return sorted(file.name for file in cache.glob("*.part"))


@pytest.mark.parametrize("below", ["", "multi30k"])
def test_the_files_in_the_folder_that_the_user_names_are_taken(offline, tmp_path, monkeypatch, below):
    put(tmp_path / "mine" / below)
    monkeypatch.setenv("ATTNCOURSE_DATA", str(tmp_path / "mine"))
    train, val, test = multi30k("de", "en")
    assert [len(train), len(val), len(test)] == [300, 3, 2]
    assert train[7] == ("train de 7", "train en 7") and test[1] == ("test_2016_flickr de 1", "test_2016_flickr en 1")
    assert multi30k("en", "de").val[0] == Pair("val en 0", "val de 0")


def test_what_is_missing_is_downloaded_once_and_then_it_is_there(server, cache, asked):
    first = multi30k()
    assert len(asked) == 6 and parts(cache) == [] and sorted(file.name for file in cache.iterdir()) == sorted(FILES)
    assert multi30k() == first and len(asked) == 6


def test_a_download_that_is_cut_off_goes_on_where_it_was(server, cache, run_config, asked):
    run_config["train.de.gz"] = ["cut"]
    assert len(multi30k().train) == 300
    assert asked[:2] == [("train.de.gz", None), ("train.de.gz", "bytes=40-")]


def test_what_came_before_the_line_broke_for_good_is_kept_for_the_next_call(server, cache, run_config, asked):
    run_config["train.de.gz"] = ["cut", "cut"]
    with pytest.raises(NoData, match=rf"cut off after 80 of {len(TRAIN)} bytes, which are kept"):
        multi30k()
    assert (cache / "train.de.gz.part").read_bytes() == TRAIN[:80] and not (cache / "train.de.gz").exists()
    assert len(multi30k().train) == 300 and asked[2] == ("train.de.gz", "bytes=80-")


def test_a_server_that_cannot_go_on_in_the_middle_sends_all_again(server, cache, run_config):
    run_config["train.de.gz"] = ["cut", "ignore the range"]
    assert len(multi30k().train) == 300
    assert (cache / "train.de.gz").read_bytes() == TRAIN


def test_what_was_whole_and_not_yet_in_its_place_is_put_there(server, cache):
    cache.mkdir(parents=True)
    (cache / "train.de.gz.part").write_bytes(TRAIN)
    assert len(multi30k().train) == 300 and parts(cache) == []


def test_a_wrong_beginning_is_thrown_away_and_the_file_fetched_anew(server, cache, asked, capsys):
    cache.mkdir(parents=True)
    (cache / "train.de.gz.part").write_bytes(b"an older version's")
    assert len(multi30k().train) == 300
    assert [wanted for name, wanted in asked if name == "train.de.gz"] == ["bytes=18-", None]
    assert "train.de.gz has another SHA-256 and was thrown away; trying once more" in capsys.readouterr().err


def test_a_download_that_is_wrong_twice_leaves_nothing_behind_and_says_so(server, cache, run_config):
    run_config["val.en.gz"] = ["wrong", "wrong"]
    with pytest.raises(NoData, match=r"what came for val\.en\.gz has another SHA-256 and was thrown away"):
        multi30k()
    assert parts(cache) == [] and not (cache / "val.en.gz").exists()
    assert (cache / "train.de.gz").exists(), "what was right is kept"


def test_a_passing_fault_of_the_server_passes(server, run_config, capsys):
    run_config["train.en.gz"] = ["503"]
    assert len(multi30k().train) == 300
    assert "HTTP Error 503" in capsys.readouterr().err


def test_a_server_that_has_not_the_file_is_told_in_one_line(server, run_config):
    run_config["train.en.gz"] = ["404", "404"]
    with pytest.raises(NoData, match=r"train\.en\.gz: HTTP Error 404: Not Found\): put train\.de\.gz, ") as error:
        multi30k()
    assert "\n" not in str(error.value)


def test_without_a_network_one_line_says_what_to_do(offline, cache, capsys):
    with pytest.raises(CommandError) as error:
        multi30k()
    assert capsys.readouterr().err == "", "a second try at once would only take time"
    said = str(error.value)
    assert "refused" in said and "\n" not in said and all(name in said for name in FILES)
    assert f"into {cache}, or set ATTNCOURSE_DATA" in said and said.endswith("number words need no download")


def test_a_file_of_the_users_that_is_another_is_named_refused_and_left_alone(server, tmp_path, monkeypatch, asked):
    put(tmp_path / "mine")
    (tmp_path / "mine" / "val.de.gz").write_bytes(b"mine")
    monkeypatch.setenv("ATTNCOURSE_DATA", str(tmp_path / "mine"))
    with pytest.raises(BadData, match=r"mine.val\.de\.gz: not the file of that name in Multi30k"):
        multi30k()
    assert (tmp_path / "mine" / "val.de.gz").read_bytes() == b"mine" and asked == []


def test_a_cache_that_cannot_be_written_to_is_told_in_one_line(server, cache):
    cache.parent.write_text("a file where the folder should be")
    with pytest.raises(NoData, match=r"could not be downloaded \(\[Errno \d+\].*cache.*or set ATTNCOURSE_DATA"):
        multi30k()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here, which is what a full disk looks like")
def test_a_full_disk_is_told_in_one_line(server, cache):
    cache.mkdir(parents=True)
    (cache / "train.de.gz.part").symlink_to("/dev/full")
    with pytest.raises(NoData, match=r"could not be downloaded \(.*No space left on device.*or set ATTNCOURSE_DATA"):
        multi30k()
    assert not (cache / "train.de.gz").exists()


def test_a_language_that_is_not_there_is_refused_before_anything_is_fetched(server, asked):
    with pytest.raises(ValueError, match="target: got 'cs', expected one of 'de', 'en', 'fr'"):
        multi30k("de", "cs")
    assert asked == []


@pytest.mark.skipif("ATTNCOURSE_DATA" not in os.environ, reason="set ATTNCOURSE_DATA to a folder with Multi30k's files")
@pytest.mark.parametrize("languages", [("de", "en"), ("en", "fr")])
def test_the_data_set_has_the_sizes_that_are_published(languages):
    split = multi30k(*languages)
    assert [len(pairs) for pairs in split] == [29_000, 1_014, 1_000]
    assert all(pair.source and pair.target for pairs in split for pair in pairs)
