import type { Connection } from "./libsql-drivers.ts";

/** What a compiled statement may touch: pages of tables and indexes, by the number of their database. */
export interface AllowedRoots {
  read: ReadonlyMap<number, ReadonlySet<number>>;
  write: ReadonlyMap<number, ReadonlySet<number>>;
}

/** Instructions that compute, and that read and write through cursors. What opens a cursor is looked at. */
const harmless = new Set(
  `Init Goto Gosub Return InitCoroutine EndCoroutine Yield HaltIfNull Halt Integer Int64 Real String8 String
  BeginSubrtn Null SoftNull Blob Variable Move Copy SCopy IntCopy ResultRow Concat Add Subtract Multiply Divide
  Remainder CollSeq BitAnd BitOr ShiftLeft ShiftRight AddImm MustBeInt RealAffinity Cast Eq Ne Lt Le Gt Ge ElseEq
  ElseNotEq Permutation Compare Jump And Or IsTrue Not BitNot Once If IfNot IsNull IsType ZeroOrNull NotNull
  IfNullRow Offset Column TypeCheck Affinity MakeRecord Count OpenDup OpenAutoindex OpenEphemeral SorterOpen
  SequenceTest OpenPseudo Close ColumnsUsed SeekLT SeekLE SeekGE SeekGT SeekScan SeekHit IfNotOpen IfNoHope
  NoConflict NotFound Found SeekRowid NotExists Sequence NewRowid Insert Delete ResetCount SorterCompare
  SorterData RowData Rowid NullRow SeekEnd Last IfSizeBetween IfSmaller SorterSort Sort Rewind SorterNext Prev
  Next IdxInsert SorterInsert IdxDelete DeferredSeek IdxRowid FinishSeek IdxLE IdxGT IdxLT IdxGE ResetSorter
  RowSetAdd RowSetRead RowSetTest IfPos OffsetLimit IfNotZero DecrJumpZero AggValue FilterAdd Filter ClrSubtype
  GetSubtype SetSubtype Trace ReleaseReg Noop Explain Abortable RowCell MemMax`.split(/\s+/),
);

const calls = new Set(["Function", "PureFunc", "AggStep", "AggStep1", "AggInverse", "AggFinal"]);

const functions = new Set(
  `count sum avg min max string_agg group_concat total lower upper length ltrim rtrim trim substr substring abs
  round sign concat ceil floor sqrt exp ln mod power pow octet_length row_number rank dense_rank percent_rank
  cume_dist ntile lag lead first_value last_value nth_value like -> ->> strftime coalesce ifnull nullif iif
  current_timestamp current_date`.split(/\s+/),
);

interface Instruction {
  opcode: string;
  p2: number;
  p3: number;
  p4: string | null;
}

export class NotAllowed extends Error {}

/**
 * Throws unless a statement, as SQLite itself has compiled it, stays within what is allowed. It knows nothing
 * of the text: whatever that says, these are the instructions that would run.
 */
export function requireAllowed(connection: Connection, text: string, { read, write }: AllowedRoots): void {
  for (const { opcode, p2, p3, p4 } of instructionsOf(connection, text)) {
    if (harmless.has(opcode)) continue;
    if (calls.has(opcode) && functions.has(String(p4).replace(/\(-?\d+\)$/, ""))) continue;
    if (opcode === "Transaction" && (p2 === 0 || write.size > 0)) continue;
    if ((opcode === "OpenRead" || opcode === "ReopenIdx") && read.get(p3)?.has(p2)) continue;
    if (opcode === "OpenWrite" && write.get(p3)?.has(p2)) continue;
    throw new NotAllowed(`${opcode} ${p4 ?? ""} is not allowed`.replace("  ", " "));
  }
}

const instructionsOf = (connection: Connection, text: string): Instruction[] =>
  connection.prepare(`EXPLAIN ${text}`).all([]) as unknown as Instruction[];
