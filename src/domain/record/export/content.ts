import { createHash } from "node:crypto";
import { type Instant, rfc3339 } from "../../../kit/clock.ts";
import { missing } from "../../../kit/fault.ts";
import {
  type ExportedTable,
  type ExportSection,
  exportedTables,
  exportFormat,
  exportSections,
} from "../../../store/exported-tables.ts";
import type { Basics, Store } from "../../../store/store.ts";
import { exportRunsAtOnce } from "./limits.ts";
import { lineOf } from "./lines.ts";
import { type PageScope, TablePages } from "./pages.ts";
import * as rows from "./rows.ts";

/** What of an org is exported. */
export interface ExportContent {
  orgId: string;
  sections: ReadonlySet<ExportSection>;
  /** Of events, runs with their steps, and the audit. */
  from: Instant | undefined;
  to: Instant | undefined;
}

export interface ContentDeps extends Basics<"store" | "clock"> {
  /** The product's version. */
  version: string;
}

async function* ofTable(store: Store, table: ExportedTable, scope: PageScope): AsyncGenerator<string[]> {
  const environmentId = table.of === "org" ? undefined : scope.head?.id;
  const pages = new TablePages(store, table, scope);
  while (!pages.isOver) {
    const page = await pages.next();
    if (page.length > 0) yield page.map((row) => lineOf(table, environmentId, row));
  }
}

const runsTable = exportedTables.find(({ table }) => table === "runs")!;

/** What belongs to runs is found by their ids, a page of runs after the other. */
async function* ofRuns(
  store: Store,
  tables: readonly ExportedTable[],
  scope: PageScope,
): AsyncGenerator<string[]> {
  const ids = new TablePages(store, { ...runsTable, columns: { id: "text", created_at: "number" } }, scope);
  while (!ids.isOver) {
    const page = (await ids.next()).map(({ id }) => id as string);
    for (let at = 0; at < page.length; at += exportRunsAtOnce)
      for (const table of tables) {
        const runIds = page.slice(at, at + exportRunsAtOnce);
        yield* ofTable(store, table, { ...scope, runIds });
      }
  }
}

async function* ofSection(
  store: Store,
  section: ExportSection,
  heads: readonly rows.ExportedHead[],
  scope: PageScope,
): AsyncGenerator<string[]> {
  const tables = exportedTables.filter((table) => table.section === section);
  for (const table of tables) if (table.of === "org") yield* ofTable(store, table, scope);
  const ofRun = tables.filter(({ of }) => of === "runs");
  const ofEnvironment = tables.filter(({ of }) => of === "environment");
  const filled = await rows.filledTables(store, ofEnvironment, heads);
  const hasRuns = ofRun.length > 0 ? await rows.filledTables(store, [runsTable], heads) : filled;
  for (const head of heads) {
    for (const table of ofEnvironment) {
      if (!filled.has(`${table.table} ${head.id}`)) continue;
      const after =
        table.table === "events" && scope.from !== undefined
          ? { after: await rows.positionBefore(store, head.id, scope.from) }
          : {};
      yield* ofTable(store, table, { ...scope, head, ...after });
    }
    if (ofRun.length > 0 && hasRuns.has(`runs ${head.id}`)) yield* ofRuns(store, ofRun, { ...scope, head });
  }
}

/** The lines in pieces; `keep` is called between them. */
export async function* contentOf(
  { store, clock, version }: ContentDeps,
  content: ExportContent,
  keep: () => Promise<void>,
): AsyncGenerator<string> {
  const { orgId, sections, from, to } = content;
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
    for await (const page of ofSection(store, section, heads, scope)) {
      counts[section] += page.length;
      await keep();
      yield told(page.join(""));
    }
  }
  yield `${JSON.stringify({ section: "end", counts, sha256: sum.digest("hex") })}\n`;
}
