"""The 6502's instruction set as two control words an opcode.

An opcode is `aaabbbcc`: `cc` chooses a family, `aaa` the operation, `bbb` the addressing mode. The
tables follow from that structure and from the number of bus cycles that a mode takes. An
instruction passes two stages: `shift` works on one source, `alu` combines the result with a
register. Undocumented opcodes of the family `cc` = 3 do the work of a read-modify-write and of an
accumulator operation at once, which is what the two stages are. Unstable opcodes, and those that
halt the processor, carry `bad`.
"""

from __future__ import annotations

import numpy as np

from jaxrl_fast.envs.atari.fields import Fields

ADDRESS = Fields(
    length=2, cycles=4, index=2, zero_page=1, indirect=2, immediate=1, reads=1, writes=1, penalty=1,
    pulls=1, pushes=1, flow=3, stack=3, bad=1,
)  # fmt: skip
OPERATION = Fields(
    source=3, shift=3, alu=3, left=2, to_a=1, to_x=1, to_y=1, to_sp=1, zn=1, shift_carry=1,
    alu_carry=1, overflow=1, to_flags=1, flag=3, flag_value=1, anc=1, arr=1,
)  # fmt: skip

NO_INDEX, BY_X, BY_Y = range(3)
DIRECT, POINTER_X, POINTER_Y, POINTER = range(4)
NEXT, BRANCH, JUMP, CALL, RETURN, RESUME, BREAK = range(7)
MEMORY, A, X, Y, SP, A_AND_X, A_AND_MEMORY, FLAGS = range(8)
KEEP, ASL, LSR, ROL, ROR, INC, DEC = range(7)
PASS, ORA, AND, EOR, ADC, SBC, CMP, BIT = range(8)
LEFT_A, LEFT_X, LEFT_Y, LEFT_A_AND_X = range(4)
NO_FLAG, CARRY, INTERRUPT, OVERFLOW, DECIMAL = range(5)

STACK_MIDDLE = 3  # the field `stack` holds the change of the stack pointer plus this

# Addressing modes: (bytes, cycles of a read, of a write, of a read-modify-write, address fields).
_MODES = {
    "imp": (1, 2, 2, 2, {}),
    "imm": (2, 2, 0, 0, dict(immediate=1)),
    "zp": (2, 3, 3, 5, dict(zero_page=1)),
    "zpx": (2, 4, 4, 6, dict(zero_page=1, index=BY_X)),
    "zpy": (2, 4, 4, 6, dict(zero_page=1, index=BY_Y)),
    "abs": (3, 4, 4, 6, {}),
    "absx": (3, 4, 5, 7, dict(index=BY_X)),
    "absy": (3, 4, 5, 7, dict(index=BY_Y)),
    "indx": (2, 6, 6, 8, dict(zero_page=1, indirect=POINTER_X)),
    "indy": (2, 5, 6, 8, dict(zero_page=1, indirect=POINTER_Y)),
}
_PAGED = {"absx", "absy", "indy"}  # one cycle more for a read that crosses a page
_BY_BBB = ("indx", "zp", "imm", "abs", "indy", "zpx", "absy", "absx")  # families 1 and 3
_ACCUMULATE = (
    dict(alu=ORA, to_a=1, zn=1),
    dict(alu=AND, to_a=1, zn=1),
    dict(alu=EOR, to_a=1, zn=1),
    dict(alu=ADC, to_a=1, zn=1, alu_carry=1, overflow=1),
    None,  # a store
    dict(alu=PASS, to_a=1, zn=1),
    dict(alu=CMP, zn=1, alu_carry=1),
    dict(alu=SBC, to_a=1, zn=1, alu_carry=1, overflow=1),
)
_SHIFTS = (ASL, ROL, LSR, ROR, None, None, DEC, INC)
_ROTATES = (ASL, LSR, ROL, ROR)  # these set the carry


def _word(mode: str, kind: str, operation: dict, **fields: int) -> tuple[int, int]:
    """Return both control words of an instruction that reads, writes or modifies memory."""
    length, read, write, modify, address = _MODES[mode]
    memory = mode not in ("imp", "imm") and kind != "none"
    cycles = dict(read=read, write=write, modify=modify, none=read)[kind]
    fields = dict(length=length, cycles=cycles, **address, **fields)
    fields["reads"] = int(memory and kind in ("read", "modify"))
    fields["writes"] = int(memory and kind in ("write", "modify"))
    fields["penalty"] = int(mode in _PAGED and kind == "read")
    return ADDRESS.pack(**fields), OPERATION.pack(**operation)


def _nop(mode: str) -> tuple[int, int]:
    return _word(mode, "read", {})


def _bad() -> tuple[int, int]:
    return ADDRESS.pack(length=1, cycles=2, bad=1), 0


def _shift(code: int) -> dict:
    return dict(shift=code, shift_carry=int(code in _ROTATES))


def _family_0(aaa: int, bbb: int) -> tuple[int, int]:
    """Return the words of branches, flags, jumps, BIT, and of loads and compares of X and Y."""
    if bbb == 4:
        return _word("imp", "none", {}, flow=BRANCH)[0] + 1, 0  # length 2
    if bbb == 6:
        flag = (CARRY, CARRY, INTERRUPT, INTERRUPT, None, OVERFLOW, DECIMAL, DECIMAL)[aaa]
        if flag is None:
            return _word("imp", "none", dict(source=Y, to_a=1, zn=1))
        return _word("imp", "none", dict(flag=flag, flag_value=int(aaa in (1, 3, 7))))
    if bbb == 0 and aaa < 4:
        return _stack_flow(aaa)
    if bbb == 2:
        return _implied_0(aaa)
    if bbb == 3 and aaa in (2, 3):
        if aaa == 2:
            return ADDRESS.pack(length=3, cycles=3, flow=JUMP), 0
        return ADDRESS.pack(length=3, cycles=5, indirect=POINTER, reads=1, flow=JUMP), 0
    mode = {0: "imm", 1: "zp", 3: "abs", 5: "zpx", 7: "absx"}[bbb]
    if aaa == 4 and bbb in (0, 7):
        return _bad() if bbb else _nop("imm")
    if aaa == 4:
        return _word(mode, "write", dict(source=Y))
    if aaa == 5:
        return _word(mode, "read", dict(to_y=1, zn=1))
    if aaa in (6, 7) and bbb in (0, 1, 3):
        left = LEFT_Y if aaa == 6 else LEFT_X
        return _word(mode, "read", dict(alu=CMP, left=left, zn=1, alu_carry=1))
    if aaa == 1 and bbb in (1, 3):
        return _word(mode, "read", dict(alu=BIT, zn=1, overflow=1))
    return _nop(mode)


def _stack_flow(aaa: int) -> tuple[int, int]:
    """Return the words of BRK, JSR, RTI and RTS."""
    stack = (-3, -2, 3, 2)[aaa] + STACK_MIDDLE
    push = dict(pushes=1, writes=1, stack=stack)
    if aaa == 0:
        address = ADDRESS.pack(length=2, cycles=7, indirect=POINTER, reads=1, flow=BREAK, **push)
        return address, OPERATION.pack(flag=INTERRUPT, flag_value=1)
    if aaa == 1:
        return ADDRESS.pack(length=3, cycles=6, flow=CALL, **push), 0
    if aaa == 2:
        address = ADDRESS.pack(length=1, cycles=6, pulls=1, reads=1, flow=RESUME, stack=stack)
        return address, OPERATION.pack(to_flags=1)
    return ADDRESS.pack(length=1, cycles=6, flow=RETURN, stack=stack), 0


def _implied_0(aaa: int) -> tuple[int, int]:
    """Return the words of PHP, PLP, PHA, PLA, DEY, TAY, INY and INX."""
    push = dict(length=1, cycles=3, pushes=1, writes=1, stack=STACK_MIDDLE - 1)
    pull = dict(length=1, cycles=4, pulls=1, reads=1, stack=STACK_MIDDLE + 1)
    return (
        (ADDRESS.pack(**push), OPERATION.pack(source=FLAGS)),
        (ADDRESS.pack(**pull), OPERATION.pack(to_flags=1)),
        (ADDRESS.pack(**push), OPERATION.pack(source=A)),
        (ADDRESS.pack(**pull), OPERATION.pack(to_a=1, zn=1)),
        _word("imp", "none", dict(source=Y, shift=DEC, to_y=1, zn=1)),
        _word("imp", "none", dict(source=A, to_y=1, zn=1)),
        _word("imp", "none", dict(source=Y, shift=INC, to_y=1, zn=1)),
        _word("imp", "none", dict(source=X, shift=INC, to_x=1, zn=1)),
    )[aaa]


def _family_1(aaa: int, bbb: int) -> tuple[int, int]:
    """Return the words of the accumulator's operations."""
    mode = _BY_BBB[bbb]
    if aaa == 4:
        return _nop("imm") if mode == "imm" else _word(mode, "write", dict(source=A))
    return _word(mode, "read", _ACCUMULATE[aaa])


def _family_2(aaa: int, bbb: int) -> tuple[int, int]:
    """Return the words of shifts, increments, and of loads, stores and moves of X."""
    by_y = aaa in (4, 5)
    mode = {1: "zp", 3: "abs", 5: "zpy" if by_y else "zpx", 7: "absy" if by_y else "absx"}.get(bbb)
    if bbb == 4 or (bbb == 0 and aaa < 4):
        return _bad()  # halts the processor
    if bbb == 0:
        return _word("imm", "read", dict(to_x=1, zn=1)) if aaa == 5 else _nop("imm")
    if bbb == 2 and aaa >= 4:
        moves = (
            dict(source=X, to_a=1, zn=1),
            dict(source=A, to_x=1, zn=1),
            dict(source=X, shift=DEC, to_x=1, zn=1),
            {},
        )
        return _word("imp", "none", moves[aaa - 4])
    if bbb == 2:
        return _word("imp", "none", dict(source=A, to_a=1, zn=1, **_shift(_SHIFTS[aaa])))
    if bbb == 6:
        moves = {4: dict(source=X, to_sp=1), 5: dict(source=SP, to_x=1, zn=1)}
        return _word("imp", "none", moves.get(aaa, {}))
    if aaa == 4:
        return _bad() if bbb == 7 else _word(mode, "write", dict(source=X))
    if aaa == 5:
        return _word(mode, "read", dict(to_x=1, zn=1))
    return _word(mode, "modify", dict(zn=1, **_shift(_SHIFTS[aaa])))


def _family_3(aaa: int, bbb: int) -> tuple[int, int]:
    """Return the words of the undocumented opcodes that do two things."""
    mode = _BY_BBB[bbb]
    if aaa in (4, 5):
        mode = {"zpx": "zpy", "absx": "absy"}.get(mode, mode)
    if mode == "imm":
        return _immediate_3(aaa)
    if aaa == 4:
        return _word(mode, "write", dict(source=A_AND_X)) if bbb in (0, 1, 3, 5) else _bad()
    if aaa == 5:
        address, operation = _word(mode, "read", dict(to_a=1, to_x=1, zn=1))
        slow = ADDRESS.pack(cycles=int(mode == "zp"))  # ALE counts a cycle more
        return _bad() if bbb == 6 else (address + slow, operation)
    return _word(mode, "modify", dict(_ACCUMULATE[aaa], **_shift(_SHIFTS[aaa])))


def _immediate_3(aaa: int) -> tuple[int, int]:
    """Return the words of ANC, ALR, ARR, SBX and SBC; LXA and XAA are unstable."""
    operations = (
        dict(source=A_AND_MEMORY, to_a=1, zn=1, anc=1),
        dict(source=A_AND_MEMORY, to_a=1, zn=1, anc=1),
        dict(source=A_AND_MEMORY, to_a=1, zn=1, shift=LSR, shift_carry=1),
        dict(source=A_AND_MEMORY, to_a=1, zn=1, shift=ROR, arr=1),
        None,
        None,
        dict(alu=CMP, left=LEFT_A_AND_X, to_x=1, zn=1, alu_carry=1),
        _ACCUMULATE[7],
    )
    return _bad() if operations[aaa] is None else _word("imm", "read", operations[aaa])


def control_words() -> np.ndarray:
    """Return int32 [256, 2]: the words `ADDRESS` and `OPERATION` of each opcode."""
    families = (_family_0, _family_1, _family_2, _family_3)
    words = [families[code & 3](code >> 5, (code >> 2) & 7) for code in range(256)]
    table = np.array(words, np.int32)
    still = ~np.isin(ADDRESS.get(table[:, 0], "flow"), (CALL, RETURN, RESUME, BREAK))
    moves = ADDRESS.has(table[:, 0], "pulls") | ADDRESS.has(table[:, 0], "pushes")
    table[still & ~moves, 0] += ADDRESS.pack(stack=STACK_MIDDLE)
    return table
