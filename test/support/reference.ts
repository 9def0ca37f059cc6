import { join } from "node:path";
import { Registry } from "prom-client";
import { configurationTable } from "../../src/settings/settings.ts";
import { tables } from "../../src/store/tables/index.ts";
import { dependencies } from "./dependencies.ts";
import { frameRows } from "./frames.ts";
import { allLoops } from "./loops.ts";
import { sharedNats } from "./nats.ts";
import { startTestServer, type TestServer } from "./server.ts";

export const referencePath = join(import.meta.dir, "../../src/REFERENCE.md");

const cell = (text: string) => text.replaceAll("|", "\\|");
export const table = (head: string[], rows: string[][]) =>
  [head, head.map(() => "---"), ...rows].map((row) => `| ${row.map(cell).join(" | ")} |`).join("\n");

const paceOf = (ms: number) =>
  ms < 1_000 ? `${ms} ms` : ms < 60_000 ? `${ms / 1_000} s` : `${ms / 60_000} min`;

async function loopsTable(): Promise<string> {
  const rows = (await allLoops()).map(({ name, about, everyMs, duty }) => [
    `\`${name}\``,
    paceOf(everyMs),
    duty ? `\`${duty}\`` : "",
    about,
  ]);
  return table(["loop", "every", "duty", "what it does"], rows);
}

const tablesTable = () =>
  table(
    ["table", "holds", "of an", "rows end with"],
    Object.entries(tables)
      .sort(([one], [other]) => (one < other ? -1 : 1))
      .map(([name, { holds, scope = "environment", endsWith }]) => [`\`${name}\``, holds, scope, endsWith]),
  );

const dependenciesTable = () =>
  table(
    ["package", "for", "why this one"],
    Object.entries(dependencies).map(([name, about]) => [`\`${name}\``, about.for, about.why]),
  );

/** What is done about what a check finds. */
const remedies: Record<string, string> = {
  "agents.tools": "nothing by itself: register an agent of that name and unregister it",
  "batches.overdue": "closed when loop `batches.close` goes on; look at its progress",
  "children.overdue": "moved when loop `runs.children` goes on; look at its progress",
  "cron.ledger": "nothing by itself: a slot was lost, which is a defect",
  "cron.overdue": "fired or missed when a node leads `cron` again",
  "debounces.overdue": "fired when loop `debounce.fire` goes on; look at its progress",
  "errors.miscounted": "nothing by itself: a failure was not counted, which is a defect",
  "errors.ungrouped": "nothing by itself: a group went before its runs, which is a defect",
  "events.head": "nothing by itself: restore, or find out why rows are gone",
  "events.unmatched": "compared when loop `runs.matcher` goes on; look at its progress",
  "executions.without_run": "the sweeper deletes them",
  "functions.unread": "nothing by itself: register the function again",
  "groups.position": "nothing by itself, as `events.head`: the group would skip what is logged next",
  "kv.buckets": "nothing by itself: a count that is wrong says that rows are; `max_bytes` goes by it",
  "lanes.overfull": "nothing by itself: the leases end; look for a limit that was exceeded",
  "outbox.overdue": "sent when the bus is back; look at `/ready`, and at who leads `outbox`",
  "outbox.unmirrored": "the same; only while the mirror is on",
  "streams.heads":
    "nothing by itself, as `events.head`: the next append to the stream would collide with an event",
  "projections.cursor": "nothing by itself: rebuild the projection, side by side",
  "projections.states": "nothing by itself: rebuild the projection; rows that no fold has are a defect",
  "projections.unsaved": "nothing by itself: rebuild the projection, side by side",
  "runs.without_execution":
    "the sweeper queues them again behind every fence they had, or restores their pause",
  "runs.without_wake": "the sweeper queues them, and their handler asks again",
  "waits.unmet": "looked at when loop `runs.states` goes on; look at its progress",
  "timers.overdue": "the sweeper moves them; look at the progress of loop `runs.wake`",
  "topics.gaps": "nothing by itself, as `events.head`; the oldest that is missing is named",
  "topics.head": "nothing by itself, as `events.head`",
  "webhooks.deliveries": "nothing by itself, as `events.head`: a provider was told that its event stands",
  "webhooks.position": "nothing by itself, as `events.head`: the endpoint would skip what is logged next",
};

async function checksTable(server: TestServer): Promise<string> {
  const { body } = await server.api("/api/v1/integrity");
  const checks = body.checks as { name: string; about: string }[];
  const known = new Map(checks.map(({ name, about }) => [name, about]));
  const unsaid = [...known.keys()].filter((name) => remedies[name] === undefined);
  const gone = Object.keys(remedies).filter((name) => !known.has(name));
  if (unsaid.length + gone.length > 0)
    throw new Error(`remedies differ from the checks: ${[...unsaid, ...gone]}`);
  const rows = Object.entries(remedies).map(([name, remedy]) => [`\`${name}\``, known.get(name)!, remedy]);
  return table(["check", "finds", "what is done"], rows);
}

interface MadeMetric {
  name: string;
  help: string;
  labelNames: string[];
}

/** Frames of the socket, metrics of ours and checks, of a server with all parts: PostgreSQL, a bus and the mirror. */
async function ofWholeServer(): Promise<{ frames: string; metrics: string; checks: string }> {
  const made: MadeMetric[] = [];
  let checks = "";
  let frames = "";
  const { registerMetric } = Registry.prototype;
  Registry.prototype.registerMetric = function (metric) {
    made.push(metric as unknown as MadeMetric);
    registerMetric.call(this, metric);
  };
  try {
    const settings = { metricsEnabled: true, natsUrl: (await sharedNats()).url, natsMirror: true };
    const server = await startTestServer({ engine: "postgres", settings });
    try {
      checks = await checksTable(server);
      frames = table(["frame", "field", "holds", "what it says"], frameRows(server.running.registry));
    } finally {
      await server.stop();
    }
  } finally {
    Registry.prototype.registerMetric = registerMetric;
  }
  const rows = made
    .filter(({ name }) => name.startsWith("svc_"))
    .map((metric) => [
      `\`${metric.name}\``,
      metric.constructor.name.toLowerCase(),
      metric.labelNames.map((label) => `\`${label}\``).join(", "),
      metric.help,
    ])
    .sort(([a], [b]) => (a! < b! ? -1 : 1));
  return { frames, checks, metrics: table(["metric", "kind", "labels", "what it says"], rows) };
}

/** The parts of the page that are written from the code. */
export async function partsOfPage(): Promise<Record<string, string>> {
  return {
    settings: configurationTable().trim(),
    loops: await loopsTable(),
    tables: tablesTable(),
    ...(await ofWholeServer()),
    dependencies: dependenciesTable(),
  };
}

/** The page with one part as the code has it. Throws when the marks around it are gone. */
export function withPart(page: string, name: string, text: string): string {
  const marks = new RegExp(`(<!-- ${name}: [^\\n]*-->\\n)[\\s\\S]*?(<!-- /${name} -->)`);
  if (!marks.test(page)) throw new Error(`the page has lost the marks around its ${name}`);
  return page.replace(marks, (_, begin: string, end: string) => `${begin}${text}\n${end}`);
}

export async function writeReference(): Promise<void> {
  let page = await Bun.file(referencePath).text();
  for (const [name, text] of Object.entries(await partsOfPage())) page = withPart(page, name, text);
  await Bun.write(referencePath, page);
}

if (import.meta.main) {
  await writeReference();
  process.exit(0);
}
