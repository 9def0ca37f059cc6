import { irnOf } from "../../../access/resource.ts";
import type { Instant } from "../../../kit/clock.ts";
import { purgeSliceMax } from "../../../kit/limits.ts";
import { type Session, type Store, StoreError } from "../../../store/store.ts";
import * as rows from "./rows.ts";
import type { AuditEntry, AuditHead } from "./rules.ts";
import * as rules from "./rules.ts";
import { type AuditKeys, type NotedRow, type Verified, verifyChain } from "./verify.ts";

/** The names that an environment's resources are called by. */
export type ScopeOf = (environmentId: string) => Promise<{ projectId: string | null } | undefined>;

export interface Chain {
  /** Appends to the chains of the entries' orgs, all or nothing; with `again`, leaves out what is there already. */
  append(entries: readonly AuditEntry[], options?: { again?: boolean }): Promise<void>;
  /** Names the first row that is not what was written. A head noted earlier must still be found in the chain. */
  verify(orgId: string, from: number | undefined, limit: number, noted?: NotedRow): Promise<Verified>;
  /** Cuts rows from before that time off the old end, one slice; answers how many. */
  cut(session: Session, orgId: string, before: Instant): Promise<number>;
}

export interface ChainDeps {
  store: Store;
  keys: AuditKeys;
  scopeOf: ScopeOf;
  /** Told of a head that is not what was signed. */
  onMismatch: (orgId: string, reason: string) => void;
  newId: () => string;
  now: () => Instant;
}

const genesis = "";

export function openChain({ store, keys, scopeOf, onMismatch, newId, now }: ChainDeps): Chain {
  /** How far each chain had come when this node last saw it: a head from before that was put back. */
  const seen = new Map<string, number>();

  const signed = (head: Omit<AuditHead, "signature" | "keyId">): AuditHead => {
    const { id, secret } = keys.current();
    const whole = { ...head, keyId: id };
    return { ...whole, signature: rules.headSignature(secret, whole) };
  };

  function whyNot(head: AuditHead): string | undefined {
    const secret = keys.find(head.keyId);
    if (secret === undefined) return "the head is signed with a key that this installation never had";
    if (!rules.sameText(rules.headSignature(secret, head), head.signature))
      return "the head is not what was signed";
    if (head.sequence < (seen.get(head.orgId) ?? 0)) return "an older head was put back";
    return undefined;
  }

  const mismatch = (orgId: string, reason: string): AuditEntry => ({
    id: newId(),
    orgId,
    at: now(),
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

  /** Project ids are looked up before the transaction: nothing is waited for inside it. */
  async function projectsOf(entries: readonly AuditEntry[]): Promise<Map<string, string>> {
    const projects = new Map<string, string>();
    for (const { environmentId } of entries) {
      if (environmentId === "" || projects.has(environmentId)) continue;
      projects.set(environmentId, (await scopeOf(environmentId))?.projectId ?? "*");
    }
    return projects;
  }

  async function fresh(session: Session, orgId: string, entries: readonly AuditEntry[]) {
    const ats = entries.map((entry) => entry.at);
    const ids = entries.map((entry) => entry.id);
    const known = await rows.knownIds(session, orgId, ids, Math.min(...ats), Math.max(...ats));
    return entries.filter((entry) => !known.has(entry.id));
  }

  function link(
    head: AuditHead,
    entries: readonly AuditEntry[],
    projects: ReadonlyMap<string, string>,
  ): rows.StoredRow[] {
    const { id: keyId, secret } = keys.current();
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

  async function whyDistrusted(session: Session, head: AuditHead, suspect: boolean) {
    const reason = whyNot(head);
    if (reason !== undefined || !(suspect || head.sequence === 0)) return reason;
    const last = await rows.lastRow(session, head.orgId);
    return last && last.sequence > head.sequence ? "an older head was put back" : undefined;
  }

  async function appendAll(entries: readonly AuditEntry[], again: boolean, suspect: boolean): Promise<void> {
    const projects = await projectsOf(entries);
    const byOrg = Map.groupBy(entries, (entry) => entry.orgId);
    const orgIds = [...byOrg.keys()].sort();
    const ends = await store.write(async (session) => {
      const begin = { sequence: 0, hash: genesis, floorSequence: 0, floorHash: genesis };
      const unknown = orgIds.filter((orgId) => !seen.has(orgId));
      if (unknown.length > 0)
        await rows.insertHeads(
          session,
          unknown.map((orgId) => signed({ orgId, ...begin })),
        );
      const heads = new Map(
        (await rows.holdHeads(session, orgIds)).map((head) => [head.orgId, head] as const),
      );
      const moved: AuditHead[] = [];
      const written: rows.StoredRow[] = [];
      for (const orgId of orgIds) {
        const held = heads.get(orgId);
        // A chain whose head was deleted goes on where this node knows that it was.
        const reason = held ? await whyDistrusted(session, held, suspect) : "the head was deleted";
        const own = byOrg.get(orgId)!;
        const left = again ? await fresh(session, orgId, own) : own;
        if (left.length === 0) continue;
        let head: AuditHead | undefined = held;
        if (reason !== undefined) {
          onMismatch(orgId, reason);
          const last = await rows.lastRow(session, orgId);
          const sequence = Math.max(held?.sequence ?? 0, seen.get(orgId) ?? 0, last?.sequence ?? 0);
          head = signed({ ...begin, ...held, orgId, sequence, hash: held?.hash ?? genesis });
          if (!held) await rows.insertHeads(session, [head]);
          left.unshift(mismatch(orgId, reason));
        }
        const linked = link(head!, left, projects);
        const { sequence, hash } = linked.at(-1)!;
        written.push(...linked);
        moved.push(signed({ ...head!, sequence, hash }));
      }
      await rows.insertRows(session, written);
      await rows.updateHeads(session, moved);
      return moved;
    });
    for (const { orgId, sequence } of ends) seen.set(orgId, sequence);
  }

  return {
    async append(entries, { again = false } = {}) {
      if (entries.length === 0) return;
      try {
        await appendAll(entries, again, false);
      } catch (error) {
        // Rows stand where the head says that there are none.
        if (!(error instanceof StoreError && error.trouble === "unique")) throw error;
        await appendAll(entries, again, true);
      }
    },

    verify: (orgId, from, limit, noted) =>
      verifyChain({ store, keys, whyNot, wasSeen: (id) => seen.has(id) }, orgId, from, limit, noted),

    async cut(session, orgId, before) {
      const [head] = await rows.holdHeads(session, [orgId]);
      // A head that cannot be trusted is evidence: nothing is cut under it.
      if (!head || whyNot(head) !== undefined) return 0;
      const slice = await rows.rowsAfter(session, orgId, head.floorSequence, purgeSliceMax);
      const keepsFrom = slice.findIndex((row) => row.at >= before);
      const gone = keepsFrom < 0 ? slice : slice.slice(0, keepsFrom);
      const last = gone.at(-1);
      if (!last) return 0;
      const { keyId: _, signature: __, ...rest } = head;
      await rows.updateHeads(session, [
        signed({ ...rest, floorSequence: last.sequence, floorHash: last.hash }),
      ]);
      return rows.deleteUpTo(session, orgId, last.sequence);
    },
  };
}
