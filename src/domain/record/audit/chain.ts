import { irnOf } from "../../../gate/resource.ts";
import type { Instant } from "../../../kit/clock.ts";
import { purgeSliceMax } from "../../../kit/limits.ts";
import { type Session, type Store, StoreError } from "../../../store/store.ts";
import type { StoredRow } from "./rows.ts";
import * as rows from "./rows.ts";
import type { AuditEntry, AuditHead } from "./rules.ts";
import * as rules from "./rules.ts";
import { type AuditKeys, type NotedRow, type Verified, verifyChain } from "./verify.ts";

/** The row that says that a head was not what this installation had signed. */
const mismatchEntry = (
  orgId: string,
  reason: string,
  { id, at }: { id: string; at: Instant },
): AuditEntry => ({
  id,
  orgId,
  at,
  eventType: rules.mismatchEvent,
  operation: "audit.append",
  action: "",
  reads: false,
  environmentId: "",
  resourceType: "audit",
  resourceId: "*",
  allowed: true,
  rule: "",
  outcome: "ok",
  callerKind: "system",
  callerId: "",
  roles: [],
  impersonatedOrgId: "",
  requestId: "",
  payload: JSON.stringify({ reason }),
  removed: "",
});

/** The rows behind a head: each carries the hash of the row before it, under a secret of the keyring. */
function linked(
  key: { id: string; secret: string },
  head: AuditHead,
  entries: readonly AuditEntry[],
  projects: ReadonlyMap<string, string>,
): StoredRow[] {
  const { id: keyId, secret } = key;
  let { sequence, hash } = head;
  return entries.map(({ resourceType, resourceId, roles, ...entry }) => {
    const { orgId, environmentId } = entry;
    const resource = irnOf({
      orgId,
      projectId: projects.get(environmentId) ?? "*",
      type: resourceType,
      environmentId: environmentId || "*",
      environmentName: "",
      id: resourceId,
    });
    sequence++;
    const row = { ...entry, resource, roles: JSON.stringify(roles), sequence, keyId };
    hash = rules.rowHash(secret, hash, row);
    return { ...row, hash };
  });
}

/** Signs the heads of chains, and tells which stored head cannot be trusted. */
class ChainHeads {
  readonly #keys: AuditKeys;
  /** How far each chain had come when this node last saw it: a head that is older was put back. */
  readonly #seen = new Map<string, number>();

  constructor(keys: AuditKeys) {
    this.#keys = keys;
  }

  wasSeen(orgId: string): boolean {
    return this.#seen.has(orgId);
  }

  seenTo(orgId: string): number {
    return this.#seen.get(orgId) ?? 0;
  }

  noteSeen({ orgId, sequence }: AuditHead): void {
    this.#seen.set(orgId, sequence);
  }

  signed(head: Omit<AuditHead, "signature" | "keyId">): AuditHead {
    const { id, secret } = this.#keys.current();
    const whole = { ...head, keyId: id };
    return { ...whole, signature: rules.headSignature(secret, whole) };
  }

  /** What is wrong with a head, by its signature and by what this node saw. */
  whyNot(head: AuditHead): string | undefined {
    const secret = this.#keys.find(head.keyId);
    if (secret === undefined) return "the head is signed with a key that this installation never had";
    if (!rules.sameText(rules.headSignature(secret, head), head.signature))
      return "the head is not what was signed";
    if (head.sequence < this.seenTo(head.orgId)) return "an older head was put back";
    return undefined;
  }

  /** The same, and by the rows: `suspect` compares them even where nothing else asks for it. */
  async whyDistrusted(session: Session, head: AuditHead, suspect: boolean): Promise<string | undefined> {
    const reason = this.whyNot(head);
    if (reason !== undefined || !(suspect || head.sequence === 0)) return reason;
    const last = await rows.lastRow(session, head.orgId);
    return last && last.sequence > head.sequence ? "an older head was put back" : undefined;
  }
}

/** The project of an environment, for resource names. */
export type ScopeOf = (environmentId: string) => Promise<{ projectId: string | null } | undefined>;

export interface Chain {
  /**
   * Appends to the chains of the entries' orgs, all or nothing; with `again`, leaves out what is there
   * already.
   */
  append(entries: readonly AuditEntry[], options?: { again?: boolean }): Promise<void>;
  /**
   * Names the first row that is not what was written. A head noted earlier must still be found in the chain.
   */
  verify(orgId: string, from: number | undefined, limit: number, noted?: NotedRow): Promise<Verified>;
  /** Cuts rows from before that time off the old end, one slice; answers how many. */
  cut(session: Session, orgId: string, before: Instant): Promise<number>;
}

export interface ChainDeps {
  store: Store;
  keys: AuditKeys;
  scopeOf: ScopeOf;
  /** Called for a head that is not what was signed. */
  onMismatch: (orgId: string, reason: string) => void;
  newId: () => string;
  now: () => Instant;
}

/** Where a chain begins. */
const genesis = { sequence: 0, hash: "", floorSequence: 0, floorHash: "" };

export function openChain({ store, keys, scopeOf, onMismatch, newId, now }: ChainDeps): Chain {
  const heads = new ChainHeads(keys);

  /** Looks up project ids before the transaction: inside it a lookup would lengthen the hold on the heads. */
  async function projectsOf(entries: readonly AuditEntry[]): Promise<Map<string, string>> {
    const projects = new Map<string, string>();
    for (const { environmentId } of entries) {
      if (environmentId === "" || projects.has(environmentId)) continue;
      projects.set(environmentId, (await scopeOf(environmentId))?.projectId ?? "*");
    }
    return projects;
  }

  interface OrgAppend {
    orgId: string;
    head: AuditHead | undefined;
    entries: readonly AuditEntry[];
    projects: ReadonlyMap<string, string>;
    suspect: boolean;
  }

  /**
   * Links an org's entries behind its head. A head that cannot be trusted is reported by a row before them.
   */
  async function extend(
    session: Session,
    { orgId, head: held, entries, projects, suspect }: OrgAppend,
  ): Promise<{ head: AuditHead; rows: rows.StoredRow[] } | undefined> {
    if (entries.length === 0) return undefined;
    const reason = held && (await heads.whyDistrusted(session, held, suspect));
    let head = held;
    let own = entries;
    if (!head || reason !== undefined) {
      const why = reason ?? "the head was deleted";
      onMismatch(orgId, why);
      const last = await rows.lastRow(session, orgId);
      // A chain whose head was deleted goes on from where this node knows that it was.
      const sequence = Math.max(held?.sequence ?? 0, heads.seenTo(orgId), last?.sequence ?? 0);
      head = heads.signed({ ...genesis, ...held, orgId, sequence, hash: held?.hash ?? genesis.hash });
      if (!held) await rows.insertHeads(session, [head]);
      own = [mismatchEntry(orgId, why, { id: newId(), at: now() }), ...entries];
    }
    const written = linked(keys.current(), head, own, projects);
    const { sequence, hash } = written.at(-1)!;
    return { head: heads.signed({ ...head, sequence, hash }), rows: written };
  }

  async function appendAll(entries: readonly AuditEntry[], again: boolean, suspect: boolean): Promise<void> {
    const projects = await projectsOf(entries);
    const byOrg = Map.groupBy(entries, (entry) => entry.orgId);
    // Sorted: two nodes that append for the same orgs would otherwise wait for each other's heads.
    const orgIds = [...byOrg.keys()].sort();
    const ends = await store.write(async (session) => {
      const unknown = orgIds.filter((orgId) => !heads.wasSeen(orgId));
      if (unknown.length > 0)
        await rows.insertHeads(
          session,
          unknown.map((orgId) => heads.signed({ orgId, ...genesis })),
        );
      const held = new Map(
        (await rows.holdHeads(session, orgIds)).map((head) => [head.orgId, head] as const),
      );
      const moved: AuditHead[] = [];
      const written: rows.StoredRow[] = [];
      for (const orgId of orgIds) {
        const own = byOrg.get(orgId)!;
        const entries = again ? await unwritten(session, orgId, own) : own;
        const extended = await extend(session, {
          ...{ orgId, entries, projects, suspect },
          head: held.get(orgId),
        });
        if (!extended) continue;
        written.push(...extended.rows);
        moved.push(extended.head);
      }
      await rows.insertRows(session, written);
      await rows.updateHeads(session, moved);
      return moved;
    });
    for (const head of ends) heads.noteSeen(head);
  }

  return {
    async append(entries, { again = false } = {}) {
      if (entries.length === 0) return;
      try {
        await appendAll(entries, again, false);
      } catch (error) {
        // A row stands beyond the head: the head is older than its chain.
        if (!(error instanceof StoreError && error.trouble === "unique")) throw error;
        await appendAll(entries, again, true);
      }
    },

    verify: (orgId, from, limit, noted) =>
      verifyChain(
        { store, keys, whyNot: (head) => heads.whyNot(head), wasSeen: (id) => heads.wasSeen(id) },
        orgId,
        from,
        limit,
        noted,
      ),

    async cut(session, orgId, before) {
      const [head] = await rows.holdHeads(session, [orgId]);
      // A head that cannot be trusted is evidence: nothing is cut under it.
      if (!head || heads.whyNot(head) !== undefined) return 0;
      const slice = await rows.rowsAfter(session, orgId, head.floorSequence, purgeSliceMax);
      const keepsFrom = slice.findIndex((row) => row.at >= before);
      const gone = keepsFrom < 0 ? slice : slice.slice(0, keepsFrom);
      const last = gone.at(-1);
      if (!last) return 0;
      const { keyId: _, signature: __, ...rest } = head;
      await rows.updateHeads(session, [
        heads.signed({ ...rest, floorSequence: last.sequence, floorHash: last.hash }),
      ]);
      return rows.deleteUpTo(session, orgId, last.sequence);
    },
  };
}

/** The entries that are not in the chain yet. */
async function unwritten(session: Session, orgId: string, entries: readonly AuditEntry[]) {
  const ats = entries.map((entry) => entry.at);
  const ids = entries.map((entry) => entry.id);
  const known = await rows.knownIds(session, orgId, ids, Math.min(...ats), Math.max(...ats));
  return entries.filter((entry) => !known.has(entry.id));
}
