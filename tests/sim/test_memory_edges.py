"""Memory accesses at the edges: addresses no buffer can have, lanes in several buffers, poison through every path."""

import numpy as np
import pytest
from asm_text import kernel_text
from run_asm import LOAD_ARGUMENTS, run_body

from monoc.sim import Launch, SimulationError, Simulator
from monoc.sim.handoff import Kind, Manifest, Region

# v[2:3] = address of element `lane` of array 0
ADDRESS = """\
\tv_lshlrev_b32_e32 v1, 2, v0
\tv_mov_b32_e32 v3, s5
\tv_add_co_u32_e32 v2, vcc, s4, v1
\tv_addc_co_u32_e32 v3, vcc, 0, v3, vcc
"""


def _move(lane: int, low: str, high: str) -> str:
    """Gives one lane another address."""
    return f"""\
\tv_cmp_eq_u32_e32 vcc, {lane}, v0
\tv_mov_b32_e32 v5, {low}
\tv_mov_b32_e32 v6, {high}
\tv_cndmask_b32_e32 v2, v2, v5, vcc
\tv_cndmask_b32_e32 v3, v3, v6, vcc
"""


@pytest.mark.parametrize(("low", "high"), [("-8", "-1"), ("0", "0x80000000"), ("-8", "0x7fffffff"), ("0", "0")])
@pytest.mark.parametrize("access", ["global_load_dword v4, v[2:3], off", "global_store_dword v[2:3], v0, off"])
def test_address_no_buffer_has(access: str, low: str, high: str) -> None:
    """Also where the instruction has hit a buffer before, and where only one lane strays."""
    loop = f"\ts_mov_b32 s20, 2\n.LBB0_1:\n\t{access}\n{_move(1, low, high)}"
    loop += "\ts_sub_u32 s20, s20, 1\n\ts_cmp_lg_u32 s20, 0\n\ts_cbranch_scc1 .LBB0_1\n"
    with pytest.raises(SimulationError) as caught:
        run_body(ADDRESS + loop, [np.zeros(64, np.uint32)])
    (finding,) = caught.value.findings
    assert (finding.kind, finding.lane) == ("bounds", 1)
    if low == high == "0":
        assert "null pointer" in finding.message


def test_scalar_load_at_the_end_of_the_address_space() -> None:
    """The second try of the same instruction, whose buffer is remembered by then."""
    loop = "\ts_mov_b64 s[20:21], s[4:5]\n\ts_mov_b32 s28, 2\n.LBB0_1:\n\ts_load_dwordx4 s[24:27], s[20:21], 0x0\n"
    loop += "\ts_mov_b64 s[20:21], -8\n\ts_sub_u32 s28, s28, 1\n\ts_cmp_lg_u32 s28, 0\n\ts_cbranch_scc1 .LBB0_1\n"
    with pytest.raises(SimulationError, match="scalar load outside every registered buffer"):
        run_body(loop, [np.zeros(64, np.uint32)])


@pytest.mark.parametrize(
    ("access", "message"),
    [
        ("ds_add_u32 v0, v1", "LDS address 1 is not aligned"),
        ("ds_add_u32 v2, v1", "LDS address 4294967292 lies behind"),
        ("scratch_load_dword v4, v0, off", "scratch offset 1 is not aligned"),
        ("scratch_store_short v0, v1, off", "scratch offset 1 is not aligned"),
        ("scratch_load_dword v4, v2, off", "scratch offset 4294967292 lies behind"),
    ],
)
def test_local_addresses_are_named(access: str, message: str) -> None:
    with pytest.raises(SimulationError, match=message) as caught:
        run_body(f"\tv_mov_b32_e32 v2, -4\n\t{access}\n", [], lds=256, scratch=256)
    assert "registered buffer" not in str(caught.value)


def test_half_register_load_from_two_buffers() -> None:
    one, two, out = (np.arange(64, dtype=np.uint32) + base for base in (0, 1000, 0))
    split = "\tv_cmp_lt_u32_e32 vcc, 31, v0\n\tv_mov_b32_e32 v5, s6\n\tv_mov_b32_e32 v6, s7\n"
    split += "\tv_cndmask_b32_e32 v2, v2, v5, vcc\n\tv_cndmask_b32_e32 v3, v3, v6, vcc\n"
    body = split + "\tv_mov_b32_e32 v7, 0x12345678\n\tglobal_load_short_d16 v7, v[2:3], off\n"
    run_body(ADDRESS + body + "\tglobal_store_dword v1, v7, s[8:9]\n", [one, two, out])
    np.testing.assert_array_equal(out, 0x12340000 | np.where(np.arange(64) < 32, one, 1000))


def _poisoned(body: str, *, lds: int = 0) -> str:
    """Message of the finding of a kernel that reads never-written array 0 and stores to output array 1; '' for none."""
    simulator = Simulator(threads=1)
    source, out = np.zeros(64, np.uint32), np.zeros(64, np.uint32)
    simulator.register(0, source, name="source", written=False)
    simulator.register(0, out, name="out", output=True)
    simulator.mark_written(source.ctypes.data, 128)
    program = simulator.load(kernel_text(LOAD_ARGUMENTS + body, arguments=(8, 8, 8), lds=lds))
    try:
        simulator.launch(Launch(program, [source.ctypes.data, out.ctypes.data, 0]))
    except SimulationError as error:
        return error.findings[0].message
    return ""


def test_never_written_memory_stays_so_through_lds() -> None:
    """Lanes 0..31 load written bytes to LDS, the others never-written ones."""
    load = "\ts_mov_b32 m0, 0\n\tv_lshlrev_b32_e32 v1, 2, v0\n\tglobal_load_lds_dword v1, s[4:5]\n"
    back = "\tds_read_b32 v2, v1\n\ts_waitcnt lgkmcnt(0)\n"
    store = "\tglobal_store_dword v1, v2, s[6:7]\n"
    assert _poisoned(load + back + "\ts_mov_b64 exec, 0xffffffff\n" + store, lds=256) == ""
    assert "never-written value is stored to an output" in _poisoned(load + back + store, lds=256)


def test_dwords_behind_num_records_are_not_poison() -> None:
    """A load cut by num_records gives zeros there, also over a register that held a never-written value."""
    resource = "\ts_mov_b32 s12, s4\n\ts_and_b32 s13, s5, 0xffff\n\ts_movk_i32 s14, 0x88\n\ts_mov_b32 s15, 0x20000\n"
    taint = "\tv_mov_b32_e32 v1, 0xa0\n\tglobal_load_dwordx2 v[4:5], v1, s[4:5]\n"
    load = "\tv_mov_b32_e32 v1, 0x84\n\tbuffer_load_dwordx2 v[4:5], v1, s[12:15], 0 offen\n"
    load += "\tv_lshlrev_b32_e32 v1, 2, v0\n"
    assert _poisoned(resource + taint + load + "\tglobal_store_dword v1, v5, s[6:7]\n") == ""
    assert "output" in _poisoned(resource + taint + load + "\tglobal_store_dword v1, v4, s[6:7]\n")


def test_misaligned_lds_address_of_a_load_to_lds() -> None:
    body = "\ts_mov_b32 m0, 2\n\tv_lshlrev_b32_e32 v1, 2, v0\n\tglobal_load_lds_dword v1, s[4:5]\n"
    with pytest.raises(SimulationError, match="LDS address 2 is not aligned"):
        run_body(body, [np.zeros(64, np.uint32)], lds=512)


def test_swizzled_buffers_are_refused() -> None:
    body = "\ts_mov_b32 s12, s4\n\ts_or_b32 s13, s5, 0x80100000\n\ts_movk_i32 s14, 0x40\n\ts_mov_b32 s15, 0x20000\n"
    body += "\tv_mov_b32_e32 v1, 0\n\tbuffer_load_dword v2, v1, s[12:15], 0 idxen\n"
    with pytest.raises(SimulationError, match="swizzled"):
        run_body(body, [np.zeros(64, np.uint32)])


@pytest.mark.parametrize(("kind", "violation"), [(Kind.TAG, "scope"), (Kind.PLAIN, None)])
def test_scalar_load_of_a_region_is_an_access(kind: Kind, violation: str | None) -> None:
    """The scalar cache is no place to poll: a pair read by `s_load` lacks its scope bits. Roles hold as well."""
    simulator = Simulator(threads=1)
    array, flags = np.zeros(64, np.uint32), np.zeros(2, np.uint32)
    for name, memory in (("data", array), ("flags", flags)):
        simulator.register(0, memory, name=name)
    flag = Region("flags", flags.ctypes.data, 8, Kind.FLAG)
    announced = {"flag": "flags", "unit_bytes": 256} if kind is Kind.PLAIN else {}
    region = Region("data", array.ctypes.data, 256, kind, **announced)
    simulator.set_manifest(Manifest((flag, region)))
    body = LOAD_ARGUMENTS + "\ts_load_dwordx2 s[12:13], s[4:5], 0x8\n"
    program = simulator.load(kernel_text(body, arguments=(8, 8, 8)))
    launch = Launch(program, [array.ctypes.data, 0, 0])
    if violation is None:
        simulator.launch(launch)
        return
    with pytest.raises(SimulationError) as caught:
        simulator.launch(launch)
    assert caught.value.findings[0].details["violation"] == violation
