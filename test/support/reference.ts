import { join } from "node:path";
import { Registry } from "prom-client";
import { tables } from "../../src/store/tables.ts";
import { dependencies } from "./dependencies.ts";
import { allLoops } from "./loops.ts";
import { sharedNats } from "./nats.ts";
import { startTestServer } from "./server.ts";

export const referencePath = join(import.meta.dir, "../../src/REFERENCE.md");

const cell = (text: string) => text.replaceAll("|", "\\|");
const table = (head: string[], rows: string[][]) =>
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
    Object.entries(tables).map(([name, { holds, scope, endsWith }]) => [
      `\`${name}\``,
      holds,
      scope,
      endsWith,
    ]),
  );

const dependenciesTable = () =>
  table(
    ["package", "for", "why this one"],
    Object.entries(dependencies).map(([name, about]) => [`\`${name}\``, about.for, about.why]),
  );

interface MadeMetric {
  name: string;
  help: string;
  labelNames: string[];
}

/** The metrics of ours that a server with all parts makes: PostgreSQL, a bus and the mirror. */
async function metricsTable(): Promise<string> {
  const made: MadeMetric[] = [];
  const { registerMetric } = Registry.prototype;
  Registry.prototype.registerMetric = function (metric) {
    made.push(metric as unknown as MadeMetric);
    registerMetric.call(this, metric);
  };
  try {
    const settings = { metricsEnabled: true, natsUrl: (await sharedNats()).url, natsMirror: true };
    await (await startTestServer({ engine: "postgres", settings })).stop();
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
  return table(["metric", "kind", "labels", "what it says"], rows);
}

/** The parts of the page that are written from the code. */
export const parts: Record<string, () => string | Promise<string>> = {
  loops: loopsTable,
  tables: tablesTable,
  metrics: metricsTable,
  dependencies: dependenciesTable,
};

/** The page with one part as the code has it. Throws when the marks around it are gone. */
export function withPart(page: string, name: string, text: string): string {
  const marks = new RegExp(`(<!-- ${name}: [^\\n]*-->\\n)[\\s\\S]*?(<!-- /${name} -->)`);
  if (!marks.test(page)) throw new Error(`src/REFERENCE.md has lost the marks around its ${name}`);
  return page.replace(marks, (_, begin: string, end: string) => `${begin}${text}\n${end}`);
}

if (import.meta.main) {
  let page = await Bun.file(referencePath).text();
  for (const [name, make] of Object.entries(parts)) page = withPart(page, name, await make());
  await Bun.write(referencePath, page);
  process.exit(0);
}
