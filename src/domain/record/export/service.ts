import { createHash } from "node:crypto";
import { breather } from "../../../kit/breather.ts";
import { type Clock, type Instant, rfc3339 } from "../../../kit/clock.ts";
import { Fault, missing } from "../../../kit/fault.ts";
import type { Log } from "../../../kit/log.ts";
import {
  type ExportedTable,
  type ExportSection,
  exportedTables,
  exportFormat,
  exportSections,
} from "../../../store/exported-tables.ts";
import type { Store } from "../../../store/store.ts";
import { exportLeaseMs, exportRenewMs, exportRunsAtOnce } from "./limits.ts";
import { type PageScope, TablePages } from "./pages.ts";
import * as rows from "./rows.ts";
import * as rules from "./rules.ts";

export interface ExportAsk {
  orgId: string;
  sections: ReadonlySet<ExportSection>;
  /** Of events, runs with their steps, and the audit. */
  from: Instant | undefined;
  to: Instant | undefined;
  /** Aborted when the client leaves. */
  signal: AbortSignal;
}

export interface Exports {
  /**
   * The lines of an export, in pieces. Throws `resource_exhausted` while another one of the org, or of this
   * node, is under way.
   */
  start(ask: ExportAsk): Promise<AsyncIterableIterator<string>>;
}

export interface ExportsDeps {
  store: Store;
  clock: Clock;
  log: Log;
  /** Names one export among all. */
  newHolder: () => string;
  /** The product's version. */
  version: string;
}

/** What this node exports, and when its client took the last piece. */
interface Underway {
  holder: string;
  takenAt: number;
}

export function openExports({ store, clock, log, newHolder, version }: ExportsDeps): Exports {
  let underway: Underway | undefined;

  /** The place of this node and the lease of the org. */
  async function take(orgId: string): Promise<Underway> {
    const before = underway;
    if (before && clock.elapsed() - before.takenAt < exportLeaseMs)
      throw rules.busy("this node exports an org already");
    const own = { holder: newHolder(), takenAt: clock.elapsed() };
    underway = own;
    const now = clock.now();
    const lease = { orgId, holder: own.holder, now, until: now + exportLeaseMs };
    try {
      const taken = await store.write((session) => rows.takeLease(session, lease));
      if (!taken) throw rules.busy("the org is exported already");
    } catch (error) {
      if (underway === own) underway = undefined;
      throw error;
    }
    return own;
  }

  async function release(orgId: string, own: Underway): Promise<void> {
    if (underway === own) underway = undefined;
    await store
      .write((session) => rows.releaseLease(session, orgId, own.holder))
      .catch((error: unknown) => log.warn("export.unreleased", { orgId, error }));
  }

  /** Called between pages: gives the event loop back, and keeps the lease. */
  function keeper(orgId: string, own: Underway): () => Promise<void> {
    const breathe = breather(clock, orgId);
    let renewedAt = clock.elapsed();
    return async () => {
      const now = clock.elapsed();
      own.takenAt = now;
      if (now - renewedAt >= exportRenewMs) {
        const lease = { orgId, holder: own.holder, until: clock.now() + exportLeaseMs };
        const kept = await store.write((session) => rows.renewLease(session, lease));
        if (!kept || underway !== own)
          throw new Fault("aborted", "the export stood still for too long: another one took its place");
        renewedAt = now;
      }
      const breath = breathe();
      if (breath) await breath;
    };
  }

  async function* ofTable(table: ExportedTable, scope: PageScope): AsyncGenerator<string[]> {
    const environmentId = table.of === "org" ? undefined : scope.head?.id;
    const pages = new TablePages(store, table, scope);
    while (!pages.isOver) {
      const page = await pages.next();
      if (page.length > 0) yield page.map((row) => rules.lineOf(table, environmentId, row));
    }
  }

  /** What belongs to runs is found by their ids, a page of runs after the other. */
  async function* ofRuns(tables: readonly ExportedTable[], scope: PageScope): AsyncGenerator<string[]> {
    const runs = exportedTables.find(({ table }) => table === "runs")!;
    const ids = new TablePages(store, { ...runs, columns: { id: "text", created_at: "number" } }, scope);
    while (!ids.isOver) {
      const page = (await ids.next()).map(({ id }) => id as string);
      for (let at = 0; at < page.length; at += exportRunsAtOnce)
        for (const table of tables) {
          const runIds = page.slice(at, at + exportRunsAtOnce);
          yield* ofTable(table, { ...scope, runIds });
        }
    }
  }

  async function* ofSection(
    section: ExportSection,
    heads: readonly rows.ExportedHead[],
    scope: PageScope,
  ): AsyncGenerator<string[]> {
    const tables = exportedTables.filter((table) => table.section === section);
    for (const table of tables) if (table.of === "org") yield* ofTable(table, scope);
    const ofRun = tables.filter(({ of }) => of === "runs");
    for (const head of heads) {
      for (const table of tables) {
        if (table.of !== "environment") continue;
        const after =
          table.table === "events" && scope.from !== undefined
            ? { after: await rows.positionBefore(store, head.id, scope.from) }
            : {};
        yield* ofTable(table, { ...scope, head, ...after });
      }
      if (ofRun.length > 0) yield* ofRuns(ofRun, { ...scope, head });
    }
  }

  async function* lines(ask: ExportAsk, keep: () => Promise<void>): AsyncGenerator<string> {
    const { orgId, sections, from, to } = ask;
    const org = await rows.getOrg(store, orgId);
    if (!org) throw missing("org", orgId);
    const heads = await rows.headsOfOrg(store, orgId);
    const scope = { orgId, from, to, now: clock.now(), auditEnd: await rows.auditEnd(store, orgId) };
    const sum = createHash("sha256");
    const counts: Record<string, number> = {};
    const told = (text: string) => {
      sum.update(text);
      return text;
    };
    const meta = {
      ...{ section: "meta", format: exportFormat.name, format_version: exportFormat.version, version },
      exported_at: rfc3339(scope.now),
      org: {
        ...{ id: org.id, name: org.name, created_at: rfc3339(org.created_at) },
        ...(org.preferences !== null && { preferences: JSON.parse(org.preferences) as object }),
      },
      sections: exportSections.filter((section) => sections.has(section)),
      // Only a whole export can be imported.
      whole: sections.size === exportSections.length && from === undefined && to === undefined,
      ...(from !== undefined && { from: rfc3339(from) }),
      ...(to !== undefined && { to: rfc3339(to) }),
      environments: heads.map(({ id, name, position }) => ({ id, name, position })),
    };
    yield told(`${JSON.stringify(meta)}\n`);
    for (const section of exportSections) {
      if (!sections.has(section)) continue;
      counts[section] = 0;
      for await (const page of ofSection(section, heads, scope)) {
        counts[section] += page.length;
        await keep();
        yield told(page.join(""));
      }
    }
    yield `${JSON.stringify({ section: "end", counts, sha256: sum.digest("hex") })}\n`;
  }

  return {
    async start(ask) {
      const own = await take(ask.orgId);
      let isOver = false;
      const end = async () => {
        if (isOver) return;
        isOver = true;
        await release(ask.orgId, own);
      };
      const pieces = lines(ask, keeper(ask.orgId, own));
      // A generator that was never asked for a piece has no `finally` to run.
      ask.signal.addEventListener("abort", () => void end(), { once: true });
      if (ask.signal.aborted) await end();
      const iterator: AsyncIterableIterator<string> = {
        async next() {
          try {
            if (isOver) throw new Fault("aborted", "the export is over");
            const piece = await pieces.next();
            if (piece.done) await end();
            return piece;
          } catch (error) {
            await end();
            throw error;
          }
        },
        async return() {
          await pieces.return(undefined);
          await end();
          return { done: true, value: undefined };
        },
        [Symbol.asyncIterator]: () => iterator,
      };
      return iterator;
    },
  };
}
