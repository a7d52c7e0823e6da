"""The 33 things that people run into most, each with the tests that show it recognised."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[2]
CATALOG = "unit/messages/test_messages_catalog.py::test_real_messages_are_recognised"
CHECKS = "unit/doctor/test_doctor_checks.py::"
WINDOWS = "unit/doctor/test_doctor_windows.py::"
MESH = "faults/test_doctor_mesh.py::"
START = "integration/test_init_process_group.py::"

ROWS: dict[str, tuple[str, ...]] = {
    "1 NCCL is not built in": (CATALOG,),
    "2 unused parameters": (CATALOG, f"{START}test_a_script_that_records_has_its_error_explained"),
    "3 the host name is loopback": (
        CATALOG,
        f"{MESH}test_a_host_name_on_loopback_is_found_and_the_lines_mend_it",
    ),
    "4 full mesh failed, no error": (CATALOG, f"{MESH}test_addresses_without_a_route_are_found"),
    "5 a peer died first": (
        CATALOG,
        "unit/messages/test_messages_logs.py::test_a_killed_rank_is_named_by_the_launchers_summary",
    ),
    "6 libuv": (CATALOG, f"{WINDOWS}test_torchrun_on_windows_is_recognised_before_it_fails"),
    "7 unsupported gloo device": (CATALOG, f"{WINDOWS}test_torch_of_a_windows_whose_gloo_is_broken"),
    "8 the port is taken": (CATALOG, f"{START}test_a_silent_listener_is_refused_by_every_rank"),
    "9 an address that cannot be bound": (CATALOG,),
    "10 IPv6, link-local, a blank": (CATALOG, f"{CHECKS}test_master_addresses_that_cannot_work"),
    "11 models differ": (CATALOG,),
    "12 DDP is slower than one process": ("faults/test_bed.py",),
    "13 a hang at a file": (
        f"{CHECKS}test_a_stale_file_is_reported_with_its_age_and_the_line_removes_it",
        f"{START}test_a_file_that_nobody_is_known_to_have_left_is_kept_and_refused",
    ),
    "14 a stale file that looks like a firewall": (
        "unit/messages/test_messages_logs.py::test_a_stale_file_is_distinguished_from_a_firewall",
    ),
    "15 wrong interface names": (
        CATALOG,
        f"{CHECKS}test_wrong_interface_names_are_explained_and_the_line_mends_them",
    ),
    "16 a firewall after the rendezvous": (
        CATALOG,
        f"{MESH}test_the_one_faulty_host_of_three_is_named_and_its_lines_mend_it",
        f"{MESH}test_a_filter_on_every_interface_is_opened_by_the_line",
        f"{MESH}test_firewalls_are_distinguished_and_another_interface_is_offered",
    ),
    "17 clients that never joined": (CATALOG, f"{MESH}test_a_rank_that_never_comes_is_named"),
    "18 slow Gloo over the wrong interface": ("faults/test_link_causes.py",),
    "19 collectives differ": (CATALOG,),
    "20 sizes differ": (CATALOG,),
    "21 a hang at the end of an epoch": (
        CATALOG,
        "unit/messages/test_messages_logs.py::test_a_rank_without_an_error_is_the_suspect_of_those_that_waited",
    ),
    "22 one thread": (CATALOG, f"{CHECKS}test_threads_against_cores"),
    "23 timed out waiting": (CATALOG,),
    "24 large buckets": ("unit/analyse/checks/test_checks_layout.py",),
    "25 the slow rank is hidden": ("faults/test_bed.py",),
    "26 sums instead of averages": (
        f"{CHECKS}test_sums_instead_of_averages_are_reported_for_the_torch_that_has_them",
        "integration/test_doctor_averages.py",
    ),
    "27 WSL2 and socket timeouts": (CATALOG,),
    "28 Windows with Linux in one group": (
        "unit/doctor/test_doctor_mesh_judge.py::test_systems_that_differ_are_named",
    ),
    "29 device_ids": (CATALOG,),
    "30 lazy init on some ranks only": (CATALOG, f"{MESH}test_differences_between_ranks"),
    "31 a silent listener on the port": (f"{CHECKS}test_a_silent_listener_on_the_port_is_named",),
    "32 a locked file": (f"{CHECKS}test_a_locked_file_names_the_process_and_the_line_ends_it",),
    "33 silent wrong numbers": ("integration/test_diagnosis.py",),
}


def test_all_rows_are_there() -> None:
    assert [int(row.split()[0]) for row in ROWS] == list(range(1, 34))


@pytest.mark.parametrize("row", ROWS)
def test_each_row_is_shown_by_tests_that_exist(row: str) -> None:
    for name in ROWS[row]:
        path, _, function = name.partition("::")
        tree = ast.parse((TESTS / path).read_text(encoding="utf-8"))
        names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert (function in names) if function else any(n.startswith("test_") for n in names), name
