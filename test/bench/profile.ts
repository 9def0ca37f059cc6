import { readdir, readFile } from "node:fs/promises";
import { join, resolve } from "node:path";

/** The part of a `.cpuprofile` that is read here, as V8's inspector writes it. */
interface CpuProfile {
  nodes: {
    id: number;
    callFrame: { functionName: string; url: string; lineNumber: number };
    children?: number[];
  }[];
  samples: number[];
  timeDeltas: number[];
}

interface FunctionTime {
  name: string;
  /** Shares of all samples: of the function alone, and with all that it calls. */
  own: number;
  whole: number;
}

const root = resolve(import.meta.dir, "../..");

const nameOf = ({ functionName, url, lineNumber }: CpuProfile["nodes"][number]["callFrame"]): string => {
  const place = url
    .replace(`file://${root}/`, "")
    .replace(`${root}/`, "")
    .replace(/^.*node_modules\//, "");
  return `${functionName || "(no name)"}${place === "" ? "" : ` ${place}:${lineNumber + 1}`}`;
};

/** Functions by their share of the time, those first that take most by themselves. */
export function hotFunctions({ nodes, samples, timeDeltas }: CpuProfile): FunctionTime[] {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const callerOf = new Map(nodes.flatMap(({ id, children = [] }) => children.map((child) => [child, id])));
  const times = new Map<string, { own: number; whole: number }>();
  const timeOf = (name: string) => {
    const time = times.get(name) ?? { own: 0, whole: 0 };
    times.set(name, time);
    return time;
  };
  let sum = 0;
  for (const [at, id] of samples.entries()) {
    const took = Math.max(0, timeDeltas[at] ?? 0);
    sum += took;
    const seen = new Set<string>();
    for (let one: number | undefined = id; one !== undefined; one = callerOf.get(one)) {
      const name = nameOf(byId.get(one)!.callFrame);
      if (one === id) timeOf(name).own += took;
      if (!seen.has(name)) timeOf(name).whole += took;
      seen.add(name);
    }
  }
  return [...times]
    .map(([name, { own, whole }]) => ({ name, own: own / sum, whole: whole / sum }))
    .sort((one, other) => other.own - one.own || other.whole - one.whole);
}

const percent = (share: number) => `${(share * 100).toFixed(1)} %`.padStart(7);

/** What a server wrote into this folder as it ended. */
export async function profileText(folder: string, most = 25): Promise<string> {
  const [name] = (await readdir(folder)).filter((file) => file.endsWith(".cpuprofile"));
  if (name === undefined) return "the server has left no profile";
  const found = hotFunctions(JSON.parse(await readFile(join(folder, name), "utf8")));
  const row = ({ name: text, own, whole }: FunctionTime) => `  ${percent(own)} ${percent(whole)}  ${text}`;
  const ours = found.filter(({ name: text }) => text.includes(" src/")).sort((a, b) => b.whole - a.whole);
  return [
    "    alone   whole  functions by what they take alone",
    ...found.slice(0, most).map(row),
    "    alone   whole  functions of svc by what they take with all that they call",
    ...ours.slice(0, most).map(row),
  ].join("\n");
}

/** Settings of a PostgreSQL that counts its statements. */
export const countingSettings = {
  shared_preload_libraries: "pg_stat_statements",
  "pg_stat_statements.track_planning": "on",
};

/** Statements of a database, as PostgreSQL counts them. */
export async function openStatements(databaseUrl: string) {
  const sql = new Bun.SQL(databaseUrl, { max: 1 });
  await sql.unsafe("CREATE EXTENSION IF NOT EXISTS pg_stat_statements");
  return {
    reset: async () => void (await sql.unsafe("SELECT pg_stat_statements_reset()")),
    async text(count: number, most = 12): Promise<string> {
      const rows = (await sql.unsafe(`SELECT calls, rows, total_exec_time, total_plan_time,
          shared_blks_hit + shared_blks_read AS pages, wal_bytes, regexp_replace(query, '\\s+', ' ', 'g') AS query
        FROM pg_stat_statements JOIN pg_database d ON d.oid = dbid WHERE d.datname = current_database()
        ORDER BY total_exec_time + total_plan_time DESC LIMIT ${most}`)) as Record<string, string>[];
      const each = (value: string | undefined, digits = 2) =>
        ((Number(value) / count) * 1_000).toFixed(digits).padStart(9);
      return [
        "      ms   plan ms     calls      rows     pages    WAL kB  of 1,000, by statement",
        ...rows.map(
          (row) =>
            `${each(row.total_exec_time)} ${each(row.total_plan_time)} ${each(row.calls, 1)} ${each(row.rows, 0)} ` +
            `${each(row.pages, 0)} ${each(`${Number(row.wal_bytes) / 1024}`, 0)}  ${row.query!.slice(0, 110)}`,
        ),
      ].join("\n");
    },
    close: () => sql.close(),
  };
}
