import type { Store } from "../../../store/store.ts";
import { auditFlushRowsMax } from "./limits.ts";
import * as rows from "./rows.ts";
import type { AuditHead } from "./rules.ts";
import * as rules from "./rules.ts";

/** The secrets that sign chains. */
export interface AuditKeys {
  current(): { id: string; secret: string };
  /** Finds retired secrets too. */
  find(id: string): string | undefined;
}

export interface BrokenChain {
  sequence: number;
  reason: string;
}

export interface Verified {
  valid: boolean;
  /** Rows whose hashes were checked. */
  checked: number;
  /** The chain begins after this row: retention deleted the rows before. */
  floorSequence: number;
  headSequence: number;
  headHash: string;
  broken: BrokenChain | null;
  /** Where to go on, when there was more than one call checks. */
  nextSequence: number | null;
}

/** A row of the chain that an auditor noted elsewhere. */
export interface NotedRow {
  sequence: number;
  hash: string;
}

interface VerifyDeps {
  store: Store;
  keys: AuditKeys;
  /** Why a head cannot be trusted. */
  whyNot: (head: AuditHead) => string | undefined;
  /** Whether this node has seen a chain of the org. */
  wasSeen: (orgId: string) => boolean;
}

/** Follows a chain to its head, from its floor or from a given row, whose hash is taken as given. */
export async function verifyChain(
  deps: VerifyDeps,
  orgId: string,
  from: number | undefined,
  limit: number,
  noted?: NotedRow,
): Promise<Verified> {
  const { store, keys, whyNot, wasSeen } = deps;
  const head = await rows.headOf(store, orgId);
  if (!head) {
    const left = await rows.lastRow(store, orgId);
    const gone =
      left || wasSeen(orgId) ? { sequence: left?.sequence ?? 0, reason: "the head was deleted" } : null;
    return {
      valid: gone === null,
      checked: 0,
      floorSequence: 0,
      headSequence: 0,
      headHash: "",
      broken: gone,
      nextSequence: null,
    };
  }
  const answer = {
    floorSequence: head.floorSequence,
    headSequence: head.sequence,
    headHash: head.hash,
  };
  let checked = 0;
  const broken = (sequence: number, reason: string): Verified => ({
    ...answer,
    valid: false,
    checked,
    broken: { sequence, reason },
    nextSequence: null,
  });
  const distrusted = whyNot(head);
  let at = Math.max(head.floorSequence, (from ?? 0) - 1);
  let before = head.floorHash;
  if (at > head.floorSequence) {
    const [start] = await rows.rowsAfter(store, orgId, at - 1, 1);
    if (start?.sequence !== at) return broken(at, "the row is missing");
    before = start.hash;
  }
  while (at < head.sequence && checked < limit) {
    const slice = await rows.rowsAfter(store, orgId, at, Math.min(auditFlushRowsMax, limit - checked));
    if (slice.length === 0) {
      // Retention may have cut meanwhile.
      const now = await rows.headOf(store, orgId);
      if (now && now.floorSequence > at) return verifyChain(deps, orgId, from, limit, noted);
      return broken(at + 1, "the row is missing, with all behind it");
    }
    for (const row of slice) {
      if (row.sequence > head.sequence) break;
      if (row.sequence !== at + 1) {
        const now = await rows.headOf(store, orgId);
        if (now && now.floorSequence > at) return verifyChain(deps, orgId, from, limit, noted);
        return broken(at + 1, "the row is missing");
      }
      if (row.eventType === rules.mismatchEvent)
        return broken(row.sequence, `here the chain was found changed: ${reasonOf(row.payload)}`);
      const secret = keys.find(row.keyId);
      if (secret === undefined)
        return broken(row.sequence, "hashed with a key that this installation never had");
      if (!rules.sameText(rules.rowHash(secret, before, row), row.hash))
        return broken(row.sequence, "the row, or the one before it, is not what was written");
      if (noted?.sequence === row.sequence && noted.hash !== row.hash)
        return broken(row.sequence, "the row is not the one that was noted");
      before = row.hash;
      at = row.sequence;
      checked++;
    }
    if (slice.at(-1)!.sequence > head.sequence) break;
  }
  const isWhole = at >= head.sequence;
  if (isWhole && !rules.sameText(before, head.hash))
    return broken(head.sequence, "the head names another last row");
  if (distrusted !== undefined) return broken(head.sequence, distrusted);
  if (noted && noted.sequence > head.sequence)
    return broken(head.sequence + 1, "the chain ends before the row that was noted");
  return { ...answer, valid: true, checked, broken: null, nextSequence: isWhole ? null : at + 1 };
}

function reasonOf(payload: string | null): string {
  try {
    return String((JSON.parse(payload ?? "{}") as { reason?: unknown }).reason ?? "");
  } catch {
    return "";
  }
}
